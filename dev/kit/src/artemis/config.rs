//! The configuration of one broker. Written by hand instead of by `artemis create`, which takes three seconds and sets
//! up much that is not wanted here.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::{ArtemisOptions, Login, Tls, TlsMaterial};
use crate::pki::Authority;

const BOOTSTRAP: &str = r#"<broker xmlns="http://activemq.apache.org/schema">
  <jaas-security domain="activemq" certificate-domain="activemq-certificates"/>
  <server configuration="file:FOLDER/etc/broker.xml"/>
</broker>
"#;

const MANAGEMENT: &str = r#"<management-context xmlns="http://activemq.apache.org/schema"/>
"#;

const LOGGING: &str = "rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
logger.audit.name = org.apache.activemq.audit
logger.audit.level = OFF
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %-5level [%logger] %msg%n
";

const LOGIN_PASSWORD: &str = r#"activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required
    org.apache.activemq.jaas.properties.user="users.properties"
    org.apache.activemq.jaas.properties.role="roles.properties";
};
"#;

const LOGIN_ANONYMOUS: &str = r#"activemq {
  org.apache.activemq.artemis.spi.core.security.jaas.GuestLoginModule required
    org.apache.activemq.jaas.guest.user="guest"
    org.apache.activemq.jaas.guest.role="admins";
};
"#;

const LOGIN_CERTIFICATES: &str = r#"activemq-certificates {
  org.apache.activemq.artemis.spi.core.security.jaas.TextFileCertificateLoginModule required
    org.apache.activemq.jaas.textfiledn.user="certificate-users.properties"
    org.apache.activemq.jaas.textfiledn.role="roles.properties";
};
"#;

// As `artemis create` would write it (queues are made on demand, dead letters go to DLQ, full addresses page), except that
// expired messages are looked for twice a second instead of every 30 s and the disk may be nearly full.
const BROKER: &str = r##"<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>waystation</name>
    <persistence-enabled>PERSISTENCE</persistence-enabled>
    <journal-type>NIO</journal-type>
    <journal-datasync>FSYNC</journal-datasync>JOURNAL
    <journal-min-files>2</journal-min-files>
    <journal-pool-files>2</journal-pool-files>
    <max-disk-usage>99</max-disk-usage>
    <message-expiry-scan-period>500</message-expiry-scan-period>
    <acceptors>ACCEPTORS
    </acceptors>
    <security-settings>
      <security-setting match="#">PERMISSIONS
      </security-setting>
    </security-settings>
    <address-settings>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address>
        <expiry-address>ExpiryQueue</expiry-address>
        <address-full-policy>PAGE</address-full-policy>
        <auto-create-queues>true</auto-create-queues>
        <auto-create-addresses>true</auto-create-addresses>
        <auto-delete-queues>false</auto-delete-queues>
        <auto-delete-addresses>false</auto-delete-addresses>
        <page-size-bytes>10M</page-size-bytes>
        <max-size-bytes>-1</max-size-bytes>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="DLQ"><anycast><queue name="DLQ"/></anycast></address>
      <address name="ExpiryQueue"><anycast><queue name="ExpiryQueue"/></anycast></address>
    </addresses>
  </core>
</configuration>
"##;

const ACCEPTOR: &str = "protocols=AMQP;useEpoll=true;amqpCredits=1000;amqpLowCredits=300";

const PERMISSIONS: [&str; 10] = [
    "createNonDurableQueue",
    "deleteNonDurableQueue",
    "createDurableQueue",
    "deleteDurableQueue",
    "createAddress",
    "deleteAddress",
    "consume",
    "browse",
    "send",
    "manage",
];

/// Writes the instance folder; returns what clients need when there is TLS.
pub(super) fn write(
    folder: &Path,
    options: &ArtemisOptions,
    (port, plain_port): (u16, Option<u16>),
) -> Result<Option<TlsMaterial>> {
    for name in ["etc", "tmp", "log"] {
        std::fs::create_dir(folder.join(name))?;
    }
    let file = |name: &str, text: &str| std::fs::write(folder.join("etc").join(name), text);
    let mut logins = String::new();
    match &options.login {
        Login::Anonymous => logins.push_str(LOGIN_ANONYMOUS),
        Login::Password { user, password } => {
            logins.push_str(LOGIN_PASSWORD);
            file("users.properties", &format!("{user} = {password}\n"))?;
        }
    }
    let user = match &options.login {
        Login::Anonymous => "guest",
        Login::Password { user, .. } => user,
    };
    file("roles.properties", &format!("admins = {user}\n"))?;

    let mechanisms = match options.login {
        Login::Anonymous => "ANONYMOUS",
        Login::Password { .. } => "PLAIN",
    };
    let plain = |name: &str, port: u16| {
        format!(
            "\n      <acceptor name=\"{name}\">tcp://127.0.0.1:{port}?{ACCEPTOR};saslMechanisms={mechanisms}</acceptor>"
        )
    };
    let (acceptors, material) = match options.tls {
        None => (plain("amqp", port), None),
        Some(mode) => {
            let authority = Authority::new("waystation test broker")?;
            let server = authority.server("broker", &["127.0.0.1", "localhost"])?;
            let material = TlsMaterial { ca: authority.certificate(), client: authority.client(user, None)? };
            file("server.pem", &format!("{}{}", server.key, server.certificate))?;
            file("ca.pem", &material.ca)?;
            file("certificate-users.properties", &format!("{user} = CN={user}\n"))?;
            logins.push_str(LOGIN_CERTIFICATES);
            let etc = folder.join("etc");
            let mut acceptor = format!(
                "\n      <acceptor name=\"amqps\">tcp://127.0.0.1:{port}?{ACCEPTOR};sslEnabled=true;keyStoreType=PEM;\
                 keyStorePath={}/server.pem",
                etc.display()
            );
            match mode {
                Tls::OneWay => write!(acceptor, ";saslMechanisms={mechanisms}</acceptor>")?,
                Tls::Mutual => write!(
                    acceptor,
                    ";needClientAuth=true;trustStoreType=PEMCA;trustStorePath={}/ca.pem;saslMechanisms=EXTERNAL</acceptor>",
                    etc.display()
                )?,
            }
            acceptor.push_str(&plain_port.map(|port| plain("amqp", port)).unwrap_or_default());
            (acceptor, Some(material))
        }
    };
    file("login.config", &logins)?;
    file("bootstrap.xml", &BOOTSTRAP.replace("FOLDER", &folder.display().to_string()))?;
    file("management.xml", MANAGEMENT)?;
    file("log4j2.properties", LOGGING)?;
    let permissions: String =
        PERMISSIONS.iter().map(|kind| format!("\n        <permission type=\"{kind}\" roles=\"admins\"/>")).collect();
    // Without fsync a write need not wait for others to share its flush either.
    let journal = if options.fsync { "" } else { "\n    <journal-buffer-timeout>200000</journal-buffer-timeout>" };
    let broker = BROKER
        .replace("PERSISTENCE", &options.persistence.to_string())
        .replace("FSYNC", &options.fsync.to_string())
        .replace("JOURNAL", journal)
        .replace("ACCEPTORS", &acceptors)
        .replace("PERMISSIONS", &permissions);
    file("broker.xml", &broker)?;
    Ok(material)
}

/// How the JVM is called: what `bin/artemis run` does, with a small heap and a quick start.
pub(super) fn java_flags(home: &Path, folder: &Path, options: &ArtemisOptions) -> Vec<String> {
    let (home, instance) = (home.display(), folder.display());
    vec![
        "-Xms64M".to_owned(),
        format!("-Xmx{}M", options.heap_mib),
        "-XX:+UseSerialGC".to_owned(),
        "-XX:TieredStopAtLevel=1".to_owned(),
        "-Xshare:auto".to_owned(),
        "-Dlog4j2.disableJmx=true".to_owned(),
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED".to_owned(),
        format!("-Djava.security.auth.login.config={instance}/etc/login.config"),
        "-classpath".to_owned(),
        format!("{home}/lib/artemis-boot.jar"),
        format!("-Dartemis.home={home}"),
        format!("-Dartemis.instance={instance}"),
        format!("-Djava.library.path={home}/bin/lib/linux-{}", std::env::consts::ARCH),
        format!("-Djava.io.tmpdir={instance}/tmp"),
        format!("-Ddata.dir={instance}/data"),
        format!("-Dartemis.instance.etc={instance}/etc"),
        "org.apache.activemq.artemis.boot.Artemis".to_owned(),
        "run".to_owned(),
    ]
}
