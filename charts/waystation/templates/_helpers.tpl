{{- define "waystation.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "waystation.fullname" -}}
{{- $name := include "waystation.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* What stands outside of namespaces has both in its name: a namespace has no dot, so that no two releases share one. */}}
{{- define "waystation.scoped" -}}
{{- printf "%s.%s.%s" .name .context.Release.Namespace (include "waystation.fullname" .context) }}
{{- end }}

{{- define "waystation.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "waystation.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- required "serviceAccount.create is false: say in serviceAccount.name which account exists" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "waystation.edge.namespace" -}}
{{- $namespace := default (printf "%s-edge" .Release.Namespace) .Values.edge.namespace -}}
{{- if eq $namespace .Release.Namespace -}}
{{- fail "edge.namespace is the release's own: the edge could keep the operator from leading; name another" }}
{{- end -}}
{{- $namespace }}
{{- end }}

{{- define "waystation.edge.fullname" -}}
{{- printf "%s-edge" (include "waystation.fullname" .) }}
{{- end }}

{{- define "waystation.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest }}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "waystation.selector" -}}
app.kubernetes.io/name: {{ include "waystation.name" .context }}
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "waystation.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name (.context.Chart.Version | replace "+" "_") }}
{{ include "waystation.selector" . }}
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
{{- with .context.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "waystation.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "waystation.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The rights stand in rbac/, which is also what tests run under. Here only names change: of the accounts, of their
     namespaces, and of what stands outside of namespaces. Rules are taken as they are. */}}
{{- define "waystation.rbac" -}}
{{- $context := .context -}}
{{- $narrow := .secretNamespaces -}}
{{- range $document := splitList "\n---\n" ($context.Files.Get .file) }}
{{- $object := fromYaml $document }}
{{- $kind := $object.kind }}
{{- $own := $object.metadata.name }}
{{- $secrets := hasSuffix "-secrets" $own }}
{{- if not (has $kind (list "Namespace" "ServiceAccount")) }}
{{- $labels := fromYaml (include "waystation.labels" (dict "context" $context "component" $.component)) }}
{{- if $context.Values.rbac.aggregate }}
{{- $labels = merge $labels (default dict $object.metadata.labels) }}
{{- end }}
{{- $metadata := dict "labels" $labels }}
{{- if hasPrefix "Cluster" $kind }}
{{- $_ := set $metadata "name" (include "waystation.scoped" (dict "context" $context "name" $own)) }}
{{- else }}
{{- $_ := set $metadata "name" (printf "%s%s" $.fullname (trimPrefix $.original $own)) }}
{{- $_ := set $metadata "namespace" $.namespace }}
{{- end }}
{{- $_ := set $object "metadata" $metadata }}
{{- if $object.roleRef }}
{{- $role := get $object.roleRef "name" }}
{{- if eq $object.roleRef.kind "ClusterRole" }}
{{- $_ := set $object.roleRef "name" (include "waystation.scoped" (dict "context" $context "name" $role)) }}
{{- else }}
{{- $_ := set $object.roleRef "name" (printf "%s%s" $.fullname (trimPrefix $.original $role)) }}
{{- end }}
{{- $_ := set $object "subjects" (list (dict "kind" "ServiceAccount" "name" $.account "namespace" $.namespace)) }}
{{- end }}
{{- if and (eq $kind "ClusterRoleBinding") $secrets $narrow }}
{{- $_ := set $object "kind" "RoleBinding" }}
{{- range $namespace := $narrow }}
{{- $_ := set $object.metadata "namespace" $namespace }}
---
{{ toYaml $object }}
{{- end }}
{{- else }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
