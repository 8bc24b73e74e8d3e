//! The routes that only Caravan has: every object only for callers with its right, and one wait for all objects.

use crate::rights::Tenants;
use http::Method;
use serde_json::{Value, json};

async fn ask(tenants: &Tenants, path: &str, secret: &str) -> Value {
    let got = tenants.ask(&Method::GET, path, &Value::Null, secret).await.expect("an answer");
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    got.json()
}

#[tokio::test]
async fn a_tenant_sees_its_own_objects_and_the_missing_rights() {
    let tenants = Tenants::start().await;
    let all = ask(&tenants, "/v1/caravan/overview?namespace=*", &tenants.root).await;
    assert!(all["Denied"] == json!([]) && all["Nodes"] != json!({}), "{all}");
    let own = ask(&tenants, "/v1/caravan/overview?namespace=*", &tenants.b).await;
    assert_eq!(own["Denied"], json!(["node:read"]), "{own}");
    assert_eq!((&own["Jobs"], &own["Nodes"]), (&json!({}), &Value::Null), "{own}");
    let lister = tenants.token("lister", "namespace \"*\" { capabilities = [\"list-jobs\"] }").await;
    let none = ask(&tenants, "/v1/caravan/overview?namespace=*", &lister).await;
    for kind in ["Jobs", "Allocations", "Evaluations", "Nodes", "Plugins", "Volumes", "Claims"] {
        assert!(none[kind].is_null() && !all[kind].is_null(), "{kind} {none}");
    }
    let map = ask(&tenants, "/v1/caravan/storage?namespace=*", &tenants.b).await;
    assert_eq!((&map["Volumes"], &map["Denied"]), (&json!([]), &json!(["node:read"])), "{map}");
    let map = ask(&tenants, "/v1/caravan/storage?namespace=*", &tenants.a).await;
    assert_eq!(map["Volumes"].as_array().map(Vec::len), Some(1), "{map}");
    assert_eq!((&map["StaticVolumes"], &map["Blocked"]), (&json!([]), &json!([])), "{map}");
    let storage = "/v1/caravan/storage?namespace=*";
    let failed = ask(&tenants, &format!("{storage}&rank=failed,waiting"), &tenants.root).await;
    assert_eq!((&failed["Volumes"], &failed["Facts"]["disk"]["Rest"]), (&json!([]), &json!(0)), "{failed}");
    assert_eq!(failed["StaticVolumes"][0]["Name"], "scratch", "{failed}");
    // A page with all volumes needs no other list.
    let whole = ask(&tenants, &format!("{storage}&worst=9"), &tenants.root).await;
    assert_eq!((&whole["Worst"], &whole["Facts"]["disk"]["Homes"]), (&Value::Null, &json!({})), "{whole}");
    let volume = &whole["Volumes"][0]["ID"];
    let home = ask(&tenants, &format!("{storage}&worst=9&home=none&calm=8"), &tenants.root).await;
    let worst = &home["Worst"];
    let place = worst["Places"][0].as_str().expect("a place").to_owned();
    let rest = &worst["Facts"]["disk"]["Homes"][""]["Rest"];
    assert_eq!((&worst["Listed"], rest, &worst["Next"]), (&json!(1), &json!(1), &json!("")), "{home}");
    let again = ask(&tenants, &format!("{storage}&worst=9&worst_token={place}"), &tenants.root).await;
    assert_eq!(
        (&again["Worst"]["Volumes"][0]["ID"], &again["Worst"]["Before"]),
        (volume, &json!(0)),
        "{again}"
    );
    let other = ask(&tenants, &format!("{storage}&worst=9&home=other"), &tenants.root).await;
    assert_eq!((&other["Worst"]["Listed"], &other["Volumes"][0]["ID"]), (&json!(0), volume), "{other}");
    let filtered = format!("{storage}&worst=9&home=none&filter=ID+%3D%3D+%22none%22");
    let filtered = ask(&tenants, &filtered, &tenants.root).await;
    assert_eq!((&filtered["Worst"]["Volumes"], &filtered["Volumes"]), (&json!([]), &json!([])), "{filtered}");
    assert_eq!(filtered["Worst"]["Facts"]["disk"]["Rest"], 0, "{filtered}");
    // Both lists in one answer, each with the objects that the caller may read.
    let path = format!("{storage}&per_page=1&next_token=z&worst=9");
    let both = ask(&tenants, &path, &tenants.root).await;
    assert_eq!(
        (&both["Volumes"], &both["Worst"]["Volumes"][0]["ID"], &both["Worst"]["Listed"]),
        (&json!([]), volume, &json!(1)),
        "{both}"
    );
    let hidden = ask(&tenants, &path, &tenants.b).await;
    assert_eq!(hidden["Worst"]["Volumes"], json!([]), "{hidden}");
    let explained = ask(&tenants, "/v1/plugin/csi/disk/explain", &tenants.root).await;
    let lanes: Vec<&Value> =
        explained["Lanes"].as_array().expect("lanes").iter().map(|lane| &lane["Lane"]).collect();
    assert_eq!(lanes, ["attach", "detach", "grow", "manage"], "{explained}");
    let refused = tenants.ask(&Method::GET, "/v1/caravan/storage?calm=8", &Value::Null, &tenants.root).await;
    let refused = refused.expect("an answer");
    assert!(refused.status == 400 && refused.text().contains("`calm` needs `worst`"), "{}", refused.text());
    let refused = tenants.ask(&Method::GET, "/v1/caravan/nodes/usage", &Value::Null, &tenants.b).await;
    assert_eq!(refused.map(|got| got.status.as_u16()), Some(403));
}

#[tokio::test]
async fn the_overview_counts_the_jobs_that_the_list_shows() {
    let tenants = Tenants::start().await;
    let template = json!({"Job": {
        "ID": "template", "Name": "template", "Type": "batch", "Datacenters": ["*"], "ParameterizedJob": {},
        "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver", "Config": {"run_for": "1h"}}]}]
    }});
    tenants.good("/v1/jobs?namespace=team-a", &template, &tenants.a).await;
    tenants.good("/v1/job/template/dispatch?namespace=team-a", &json!({}), &tenants.a).await;
    let all = ask(&tenants, "/v1/jobs?namespace=*", &tenants.a).await;
    let is_child = |row: &&Value| row["ParentID"] == "template";
    assert_eq!(all.as_array().unwrap().iter().filter(is_child).count(), 1, "{all}");
    for secret in [&tenants.root, &tenants.a, &tenants.b] {
        let list = ask(&tenants, "/v1/jobs/statuses?namespace=*", secret).await;
        let overview = ask(&tenants, "/v1/caravan/overview?namespace=*", secret).await;
        let counts = overview["Jobs"].as_object().unwrap().values();
        let counted: u64 = counts.map(|number| number.as_u64().unwrap()).sum();
        assert_eq!(counted, list.as_array().unwrap().len() as u64, "{overview} {list}");
    }
}

#[tokio::test]
async fn the_logs_of_a_group_need_a_job_and_rights() {
    let tenants = Tenants::start().await;
    let (a, root) = (tenants.a.clone(), tenants.root.clone());
    for (query, secret, status, text) in [
        ("namespace=team-a", &root, 400, "`job_id` is missing"),
        ("job_id=none&namespace=*", &root, 400, "`namespace`"),
        ("job_id=none&namespace=team-a&type=all", &root, 400, "`type` is \"all\""),
        ("job_id=none&namespace=team-a&offset=-1", &root, 400, "`offset` is \"-1\""),
        ("job_id=none&namespace=team-a&follow=2", &root, 400, "`follow` is \"2\""),
        ("job_id=none&namespace=team-a&since=x", &root, 400, "`since` is \"x\""),
        ("job_id=none&namespace=team-a&after=a/t/stdout", &root, 400, "`after` is \"a/t/stdout\""),
        ("job_id=none&namespace=team-a&after=a/t/stdout/3", &root, 400, "such as 3.1200"),
        ("job_id=none&namespace=team-a&after=a/t/stdout/3.12&since=7", &a, 404, "job not found"),
        ("job_id=none&namespace=team-a", &a, 404, "job not found"),
        ("job_id=none&namespace=team-b", &a, 403, "Permission denied"),
    ] {
        let path = format!("/v1/caravan/logs?{query}");
        let got = tenants.ask(&Method::GET, &path, &Value::Null, secret).await.expect("an answer");
        assert_eq!(got.status.as_u16(), status, "{query}: {}", got.text());
        assert!(got.text().contains(text), "{query}: {}", got.text());
    }
}

#[tokio::test]
async fn a_token_names_its_rights_as_they_are_in_effect() {
    let tenants = Tenants::start().await;
    let own = ask(&tenants, "/v1/acl/token/self?capabilities=true", &tenants.b).await;
    let rights = &own["CaravanCapabilities"];
    let namespaces = rights["Namespaces"].as_object().expect("an object");
    assert_eq!(namespaces.keys().collect::<Vec<_>>(), ["team-b"]);
    let caps = namespaces["team-b"].to_string();
    assert!(caps.contains("\"submit-job\"") && !caps.contains("deny"), "{caps}");
    assert_eq!(
        (&rights["Management"], &rights["Node"], &rights["Plugin"]),
        (&json!(false), &json!(""), &json!("read"))
    );
    let all = json!([{"Path": "*", "Capabilities": ["list", "read", "write", "destroy"]}]);
    assert_eq!(rights["Variables"], json!({"team-b": all}));
    let some = "namespace \"team-*\" { variables {\n\
        path \"*\" { capabilities = [\"list\"] }\n path \"app/*\" { capabilities = [\"read\", \"write\"] }\n\
        path \"app/root\" { capabilities = [\"deny\"] } } }";
    let some = tenants.token("some", some).await;
    let own = ask(&tenants, "/v1/acl/token/self?capabilities=true", &some).await;
    let rules = json!([
        {"Path": "app/root", "Capabilities": ["deny"]},
        {"Path": "app/*", "Capabilities": ["list", "read", "write"]},
        {"Path": "*", "Capabilities": ["list"]}
    ]);
    assert_eq!(own["CaravanCapabilities"]["Variables"], json!({"team-a": rules, "team-b": rules}), "{own}");
    let plain = ask(&tenants, "/v1/acl/token/self", &tenants.b).await;
    assert!(plain.get("CaravanCapabilities").is_none());
    let root = ask(&tenants, "/v1/acl/token/self?capabilities=true", &tenants.root).await;
    assert_eq!(root["CaravanCapabilities"]["Management"], true);
}

/// A caller without the right to any event is refused immediately: a client cannot distinguish a silent stream from a
/// slow one.
#[tokio::test]
async fn a_stream_without_rights_is_refused() {
    let tenants = Tenants::start().await;
    let path = "/v1/event/stream?topic=Node&namespace=*&caravan=true";
    let refused = tenants.ask(&Method::GET, path, &Value::Null, &tenants.b).await.expect("an answer");
    assert_eq!((refused.status.as_u16(), refused.text().trim()), (403, "Permission denied"));
}

/// The usage of nodes has disks and states, and has only the nodes that changed after an index.
#[tokio::test]
async fn usage_of_nodes_is_narrowed_to_changes() {
    let tenants = Tenants::start().await;
    let all = ask(&tenants, "/v1/caravan/nodes/usage", &tenants.root).await;
    let number = all["ID"].as_array().map_or(0, Vec::len);
    assert!(number > 0 && all["Total"] == number, "{all}");
    for column in ["DiskMB", "DiskMBUsed", "States", "Version"] {
        assert_eq!(all[column].as_array().map(Vec::len), Some(number), "{column}: {all}");
    }
    assert!(all.get("Meta").is_none() && all["MetaKeys"].is_array(), "{all}");
    let none = ask(&tenants, "/v1/caravan/nodes/usage?since=99999999", &tenants.root).await;
    assert_eq!((&none["ID"], &none["Total"]), (&json!([]), &json!(number)), "{none}");
    let since = ask(&tenants, "/v1/caravan/nodes/usage?since=0", &tenants.root).await;
    assert_eq!(since["ID"], all["ID"]);
    let path = "/v1/caravan/nodes/usage?since=yesterday";
    let wrong = tenants.ask(&Method::GET, path, &Value::Null, &tenants.root).await.expect("an answer");
    assert_eq!((wrong.status.as_u16(), wrong.text().contains("`since`")), (400, true), "{}", wrong.text());
}

/// Host volumes of users need the right in their namespace, host volumes of configurations the right to nodes.
#[tokio::test]
async fn host_volumes_are_listed_in_pages() {
    let tenants = Tenants::start().await;
    let list = "/v1/caravan/host-volumes?namespace=*";
    let all = ask(&tenants, list, &tenants.root).await;
    let row = &all[0];
    assert_eq!((&row["Name"], &row["Configured"], &row["ID"]), (&json!("scratch"), &json!(true), &json!("")));
    assert!(
        row["NodeName"].as_str().is_some_and(|name| !name.is_empty()) && row["Holders"] == json!([]),
        "{all}"
    );
    assert_eq!(ask(&tenants, list, &tenants.b).await, json!([]));
    for (query, number) in [
        ("node=nothing", 0),
        ("plugin_id=mkdir", 0),
        ("trouble=true", 0),
        ("filter=Name+matches+%22(%3Fi)SCR%22", 1),
        ("filter=Name+%3D%3D+%22x%22+or+any+Holders+as+h+%7B+h.JobID+%3D%3D+%22x%22+%7D", 0),
        ("sort=trouble,configured,node,name&count=true&per_page=1", 1),
    ] {
        let rows = ask(&tenants, &format!("{list}&{query}"), &tenants.root).await;
        assert_eq!(rows.as_array().map(Vec::len), Some(number), "{query}: {rows}");
    }
}

/// Lists of access control and of namespaces have pages, with the rows that the caller may see.
#[tokio::test]
async fn objects_of_access_control_are_listed_in_pages() {
    let tenants = Tenants::start().await;
    for number in 1..=3 {
        let rules = "namespace \"default\" { policy = \"read\" }";
        let policy = json!({"Name": format!("zz-{number}"), "Rules": rules});
        tenants.good(&format!("/v1/acl/policy/zz-{number}"), &policy, &tenants.root).await;
        let role = json!({"Name": format!("role-{number}"), "Policies": [{"Name": format!("zz-{number}")}]});
        tenants.good("/v1/acl/role", &role, &tenants.root).await;
    }
    for (list, filter, number) in [
        ("acl/policies", "Name+matches+%22%5Ezz-%22", 3),
        ("acl/roles", "Name+matches+%22%5Erole-%22", 3),
        ("namespaces", "Name+contains+%22team%22", 2),
    ] {
        let path = format!("/v1/{list}?filter={filter}&per_page=2&count=true&sort=-name");
        let first = tenants.ask(&Method::GET, &path, &Value::Null, &tenants.root).await.expect("an answer");
        assert_eq!(first.header("x-caravan-total"), Some(number.to_string().as_str()), "{list}");
        let rows = first.json();
        assert_eq!(rows.as_array().map(Vec::len), Some(2), "{list}: {rows}");
        let next = first.header("x-nomad-nexttoken").unwrap_or_default().to_owned();
        assert_eq!(next.is_empty(), number == 2, "{list}");
        if number == 3 {
            let rest = ask(&tenants, &format!("{path}&next_token={next}"), &tenants.root).await;
            assert!(rest[0]["Name"].as_str().is_some_and(|name| name.ends_with("-1")), "{list}: {rest}");
        }
    }
    let own = ask(&tenants, "/v1/acl/policies?per_page=10", &tenants.b).await;
    assert_eq!(own.as_array().map(Vec::len), Some(1), "{own}");
}
