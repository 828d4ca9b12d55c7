//! What people read and type: `kubectl get`, `describe`, `wait`, `explain`, `delete`.

use anyhow::{Result, ensure};
use waystation_kit::cluster::cells;
use waystation_kit::tools::repository;

use crate::support::{Kind, SPACE, Tenant, World};

/// The example, and one more that is refused, as `kubectl get` prints them, cell by cell: `-` is an empty one, `<age>` an
/// age.
const PRINTED: &[(&[&str], &str)] = &[
    (
        &["rcfg"],
        "NAME | KIND | READY | ROUTERS | BROKERS | EDGES | REASON | AGE
main | Messaging | True | - | 1/1 | - | Serving | <age>",
    ),
    (
        &["aspace"],
        "NAME | TYPE | READY | ADDRESSES | REASON | AGE
shop | brokered | True | 6/7 | Serving | <age>",
    ),
    (
        &["addr"],
        "NAME | ADDRESS | TYPE | READY | REASON | AGE
alerts | alerts | multicast | True | Configured | <age>
archive | archive | subscription | True | Configured | <age>
dead-letters | dead-letters | deadLetter | True | Configured | <age>
letterless | letterless | queue | False | DeadLetterNotFound | <age>
news | news | topic | True | Configured | <age>
orders | orders | queue | True | Configured | <age>
price-requests | price-requests | anycast | True | Configured | <age>",
    ),
    (
        &["addr", "letterless", "orders", "-o", "wide"],
        "NAME | ADDRESS | TYPE | PLAN | READY | REASON | AGE | MESSAGE
letterless | letterless | queue | - | False | DeadLetterNotFound | <age> | spec.deadLetterAddress names nowhere, which is \
         no address of space shop: create an Address of type deadLetter for it
orders | orders | queue | - | True | Configured | <age> | -",
    ),
    (
        &["waystation", "-o", "wide"],
        "NAME | ADDRESS | TYPE | PLAN | READY | REASON | AGE | MESSAGE
address.waystation.dev/alerts | alerts | multicast | - | True | Configured | <age> | -
address.waystation.dev/archive | archive | subscription | - | True | Configured | <age> | -
address.waystation.dev/dead-letters | dead-letters | deadLetter | - | True | Configured | <age> | -
address.waystation.dev/letterless | letterless | queue | - | False | DeadLetterNotFound | <age> | \
         spec.deadLetterAddress names nowhere, which is no address of space shop: create an Address of type deadLetter \
         for it
address.waystation.dev/news | news | topic | - | True | Configured | <age> | -
address.waystation.dev/orders | orders | queue | - | True | Configured | <age> | -
address.waystation.dev/price-requests | price-requests | anycast | - | True | Configured | <age> | -

NAME | TYPE | PLAN | READY | ADDRESSES | REASON | AGE
addressspace.waystation.dev/shop | brokered | - | True | 6/7 | Serving | <age>

NAME | KIND | READY | ROUTERS | BROKERS | EDGES | REASON | AGE
routerconfig.waystation.dev/main | Messaging | True | - | 1/1 | - | Serving | <age>",
    ),
];

async fn example(world: &'static World) -> Result<Tenant<'static>> {
    let yaml = std::fs::read_to_string(repository().join("docs/examples/messaging.yaml"))?;
    let yaml = yaml.replace("port: 5672", &format!("port: {}", world.broker.port()));
    let tenant = world.tenant("demo").await?;
    world.cluster.apply(&yaml).await?;
    tenant.address("letterless", serde_json::json!({"type": "queue", "deadLetterAddress": "nowhere"})).await?;
    Ok(tenant)
}

#[tokio::test]
async fn kubectl_reads_well() -> Result<()> {
    let world = World::shared().await?;
    let tenant = example(world).await?;
    let kubectl = async |arguments: &[&str]| {
        let all = [&["-n", "demo"], arguments].concat();
        world.cluster.kubectl_text(&all).await
    };
    for kind in ["rcfg/main", "aspace/shop", "addr/orders", "addr/archive"] {
        let told = kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", kind]).await?;
        ensure!(told.contains("condition met"), "{told}");
    }
    let waited = kubectl(&["wait", "--for=condition=Ready=False", "--timeout=60s", "addr/letterless"]).await?;
    ensure!(waited.contains("condition met"), "{waited}");
    tenant
        .until(Kind::AddressSpace, SPACE, "6/7", |space| {
            ensure!(space["status"]["summary"] == "6/7", "another count");
            Ok(())
        })
        .await?;

    let mut wrong = Vec::new();
    for (arguments, expected) in PRINTED {
        let printed = kubectl(&[&["get"], *arguments].concat()).await?;
        if cells(&printed) != *expected {
            wrong.push(format!("kubectl get {}\n{}\nexpected:\n{expected}", arguments.join(" "), cells(&printed)));
        }
    }
    for (arguments, expected) in [
        (&["describe", "addr", "orders"] as &[&str], &["Dead Letter Address:  dead-letters", "Configured"] as &[&str]),
        (&["describe", "addr", "letterless"], &["spec.deadLetterAddress names nowhere", "DeadLetterNotFound"]),
        (&["describe", "aspace", "shop"], &["Address Prefix:  demo.shop/", "Summary:", "6/7"]),
        (&["describe", "rcfg", "main"], &["State:", "Serving", "Brokers Summary:", "1/1"]),
        (&["explain", "addr.spec.redelivery.delay"], &["delay", "such as 500ms"]),
        (&["explain", "addr.spec.type"], &["ENUM", "deadLetter", "subscription"]),
        (&["explain", "rcfg.spec.allowedNamespaces.from"], &["Same", "Selector"]),
        (&["get", "addr", "-o", "name", "--field-selector", "spec.type=topic"], &["address.waystation.dev/news"]),
    ] {
        let printed = kubectl(arguments).await?;
        for words in expected {
            if !printed.contains(words) {
                wrong.push(format!("kubectl {} has no {words:?}:\n{printed}", arguments.join(" ")));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));

    // It waits until they are gone, and they do go.
    let told = kubectl(&["delete", "addr", "--all", "--timeout=60s"]).await?;
    ensure!(told.lines().count() == 7 && told.contains("\"archive\" deleted"), "{told}");
    let told = kubectl(&["delete", "aspace/shop", "rcfg/main", "--timeout=60s"]).await?;
    ensure!(told.contains("\"main\" deleted"), "{told}");
    let left = kubectl(&["get", "waystation", "-o", "name"]).await?;
    ensure!(left.is_empty(), "{left}");
    Ok(())
}
