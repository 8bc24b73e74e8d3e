//! The data that templates read: sent immediately, sent again after each change, and only to tasks with the right.

use crate::make;
use crate::plugin::Plugin;
use crate::world::{Client, Cluster, Setup, soon};
use caravan_rpc::{RpcError, methods};
use caravan_server::AclConfig;
use caravan_types::Namespace;
use caravan_types::alloc::{Allocation, ClientStatus};
use caravan_types::lookup::{Found, Lookup, LookupsFound, WatchLookups};
use caravan_types::ser::Secrets;
use caravan_types::variable::VariableKey;
use futures::{Stream, StreamExt};
use std::collections::BTreeMap;
use std::sync::Arc;

type Followed = std::pin::Pin<Box<dyn Stream<Item = Result<LookupsFound, RpcError>> + Send>>;

fn follow(client: &Client, alloc: &Allocation, task: &str, expected: Vec<Lookup>) -> Followed {
    let request = WatchLookups {
        node_id: client.row.id.clone(),
        secret: client.row.secret_id.clone(),
        alloc_id: alloc.id.clone(),
        task: task.to_owned(),
        lookups: expected,
    };
    client.channel.stream::<methods::WatchLookups>(request).boxed()
}

async fn next(reported: &mut Followed) -> BTreeMap<Lookup, Found> {
    soon("an answer", reported.next())
        .await
        .expect("it goes on")
        .expect("no error")
        .found
        .into_iter()
        .collect()
}

fn variable(path: &str) -> Lookup {
    Lookup::Variable { namespace: "default".into(), path: path.into() }
}

async fn put(cluster: &Cluster, path: &str, value: &str) {
    let items = Secrets::new(BTreeMap::from([("k".to_owned(), value.to_owned())]));
    let key = VariableKey::new("default", path);
    cluster.handle.variables().write(key, &items, None, None).await.unwrap();
}

fn value(found: &Found) -> Option<String> {
    match found {
        Found::Variable(Some(found)) => found.items.expose().get("k").cloned(),
        _ => None,
    }
}

async fn running(setup: Setup) -> (Cluster, Client, Arc<Allocation>) {
    let cluster = setup.start().await;
    let client = cluster.join(make::node("a"), &Plugin::default()).await;
    cluster.run_job(make::job("web")).await;
    let alloc = cluster.placed("web").await;
    (cluster, client, alloc)
}

fn task_of(alloc: &Allocation) -> String {
    alloc.group().unwrap().tasks[0].name.clone()
}

#[tokio::test]
async fn a_stream_starts_with_all_values_then_sends_changes() {
    let (cluster, client, alloc) = running(Setup::memory()).await;
    put(&cluster, "nomad/jobs/web", "one").await;
    let list = Lookup::Variables { namespace: "default".into(), prefix: "nomad/".into() };
    let service = Lookup::Service { namespace: "default".into(), name: "none".into() };
    let expected = vec![variable("nomad/jobs/web"), variable("later"), list.clone(), service.clone()];
    let mut reported = follow(&client, &alloc, &task_of(&alloc), expected);
    let first = next(&mut reported).await;
    assert_eq!(value(&first[&variable("nomad/jobs/web")]).as_deref(), Some("one"));
    assert_eq!(first[&variable("later")], Found::Variable(None));
    assert_eq!(first[&service], Found::Service(Vec::new()));
    assert!(matches!(&first[&list], Found::Variables(stubs) if stubs.len() == 1));
    // Data that no template requests is not sent.
    put(&cluster, "elsewhere", "x").await;
    put(&cluster, "later", "two").await;
    let news = next(&mut reported).await;
    assert_eq!(news.len(), 1);
    assert_eq!(value(&news[&variable("later")]).as_deref(), Some("two"));
    client.status(&alloc, ClientStatus::Complete).await;
    let end = soon("the end", reported.next()).await.expect("a reason");
    assert!(end.unwrap_err().message.contains("over"));
    cluster.stop().await;
}

#[tokio::test]
async fn a_task_reads_what_belongs_to_it() {
    let mut setup = Setup::memory();
    setup.acl = AclConfig { enabled: true, ..AclConfig::default() };
    let (cluster, client, alloc) = running(setup).await;
    for path in ["nomad/jobs/web", "nomad/jobs/other"] {
        put(&cluster, path, "x").await;
    }
    let expected = vec![
        variable("nomad/jobs/web"),
        variable("nomad/jobs/other"),
        Lookup::Services { namespace: Namespace::from("default") },
        Lookup::Services { namespace: Namespace::from("team") },
    ];
    let found = next(&mut follow(&client, &alloc, &task_of(&alloc), expected.clone())).await;
    assert_eq!(value(&found[&expected[0]]).as_deref(), Some("x"));
    assert_eq!(found[&expected[1]], Found::Denied("Permission denied".into()));
    assert_eq!(found[&expected[2]], Found::Services(Vec::new()));
    assert_eq!(found[&expected[3]], Found::Denied("Permission denied".into()));
    // Only existing tasks on the requesting node receive data.
    let mut nobody = follow(&client, &alloc, "nobody", expected.clone());
    assert!(soon("an answer", nobody.next()).await.expect("an answer").is_err());
    let other = cluster.join(make::node("b"), &Plugin::default()).await;
    let mut elsewhere = follow(&other, &alloc, &task_of(&alloc), expected);
    assert!(soon("an answer", elsewhere.next()).await.expect("an answer").is_err());
    cluster.stop().await;
}
