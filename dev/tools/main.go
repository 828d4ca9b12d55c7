// One binary that is etcd, kube-apiserver, kube-controller-manager, kubectl or helm, by the name it is called by.
//
// They share nearly all of their code, so that one link of them costs a third of what five would. dev/setup builds it
// and makes a hard link for each name.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// The tools by the name that each is called by.
var tools = map[string]func(args []string){
	"etcd": etcdmain.Main,
	"kube-apiserver": func([]string) {
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	},
	"kube-controller-manager": func([]string) {
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	},
	"kubectl": func([]string) {
		if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"helm":    helm,
	"etcd-kv": etcdKV,
}

func main() {
	run, known := tools[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintln(os.Stderr, "call this binary by the name of a tool: etcd, etcd-kv, helm, kube-apiserver, kube-controller-manager, kubectl")
		os.Exit(2)
	}
	run(os.Args)
}

func helm(args []string) {
	kube.ManagedFieldsManager = "helm"
	command, err := helmcmd.NewRootCmd(os.Stdout, args[1:], helmcmd.SetupLogging)
	if err != nil {
		slog.Warn("command failed", "error", err)
		os.Exit(1)
	}
	if err := command.Execute(); err != nil {
		if failed, ok := errors.AsType[helmcmd.CommandError](err); ok {
			os.Exit(failed.ExitCode)
		}
		os.Exit(1)
	}
}

// etcdKV reads, writes and removes one raw value, past the API server: `etcd-kv ENDPOINT get|put|del KEY`, the value on
// standard input or output. Tests put objects there that the API server would refuse.
func etcdKV(args []string) {
	if len(args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: etcd-kv ENDPOINT get|put|del KEY")
		os.Exit(2)
	}
	if err := etcdKVRun(args[1], args[2], args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func etcdKVRun(endpoint, verb, key string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	switch verb {
	case "put":
		value, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		_, err = client.Put(ctx, key, string(value))
		return err
	case "del":
		_, err := client.Delete(ctx, key)
		return err
	case "get":
		answer, err := client.Get(ctx, key)
		if err != nil {
			return err
		}
		if len(answer.Kvs) == 0 {
			return fmt.Errorf("no key %q", key)
		}
		_, err = io.Copy(os.Stdout, bytes.NewReader(answer.Kvs[0].Value))
		return err
	}
	return fmt.Errorf("%q is not get, put or del", verb)
}
