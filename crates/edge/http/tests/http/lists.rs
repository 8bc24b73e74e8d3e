//! Lists: every key of every list, totals after rights and filter, and pages under an order.

use crate::harness::{Api, Got};
use crate::rights::Tenants;
use caravan_http::routes;
use http::Method;
use serde_json::{Value, json};

/// Returns the request for the list of a route, without parameters of the order; `None` for routes that need more
/// than a path and are tested elsewhere.
fn request(path: &str) -> Option<String> {
    let path = match path {
        "/v1/volumes" => return Some("/v1/volumes?type=csi&namespace=*".into()),
        "/v1/job/**/services" => return Some("/v1/job/secret-job/services?namespace=team-a".into()),
        "/v1/service/*" => "/v1/service/web".to_owned(),
        "/v1/node/pool/**/nodes" => "/v1/node/pool/default/nodes".to_owned(),
        "/v1/node/pool/**/jobs" => "/v1/node/pool/default/jobs".to_owned(),
        path => path.to_owned(),
    };
    (!path.contains('*')).then(|| format!("{path}?namespace=*"))
}

fn ids(got: &Got) -> Vec<String> {
    let rows = got.json();
    let id = |row: &Value| row["ID"].as_str().unwrap_or_default().to_owned();
    rows.as_array().unwrap().iter().map(id).collect()
}

/// Reads a list page by page.
async fn pages(api: &Api, path: &str, size: usize) -> Vec<String> {
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let got = api.web.get(&format!("{path}&per_page={size}&next_token={token}")).await;
        assert_eq!(got.status, 200, "{}", got.text());
        seen.extend(ids(&got));
        match got.header("x-nomad-nexttoken") {
            Some(next) => token = next.to_owned(),
            None => return seen,
        }
    }
}

#[tokio::test]
async fn every_list_has_its_keys_and_a_total() {
    let tenants = Tenants::start().await;
    let get = |path: String| {
        let tenants = &tenants;
        async move { tenants.ask(&Method::GET, &path, &Value::Null, &tenants.root).await.unwrap() }
    };
    let mut lists = 0;
    for route in routes().into_iter().filter(|route| !route.sorts.is_empty() && route.method == "GET") {
        let path = request(&route.path).unwrap_or_else(|| panic!("{} needs a line in this test", route.path));
        let refused = get(format!("{path}&sort=name,-nothing")).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text());
        let text = refused.text();
        assert!(text.contains("unknown key") && text.contains("known keys are "), "{text}");
        let known = text.split("known keys are ").nth(1).unwrap().split(", ");
        for key in known {
            assert!(route.sorts.contains(&key), "{path}: the table lacks {key}");
            for key in [key.to_owned(), format!("-{key}")] {
                let got = get(format!("{path}&sort={key}&count=true")).await;
                assert_eq!(got.status, 200, "{path} {key}: {}", got.text());
                let total: usize = got.header("x-caravan-total").expect("a total").parse().unwrap();
                let rows = got.json();
                let rows = rows.as_array().unwrap_or_else(|| rows["Volumes"].as_array().unwrap()).len();
                assert_eq!(total, rows, "{path}");
            }
        }
        let plain = get(path.clone()).await;
        assert_eq!(plain.header("x-caravan-total"), None, "{path}: no total without the parameter");
        lists += 1;
    }
    assert!(lists >= 15, "{lists}");
}

#[tokio::test]
async fn a_total_counts_what_the_caller_may_see_and_the_filter_accepts() {
    let tenants = Tenants::start().await;
    let total = |path: &'static str, secret: String| {
        let tenants = &tenants;
        async move {
            let got = tenants.ask(&Method::GET, path, &Value::Null, &secret).await.unwrap();
            assert_eq!(got.status, 200, "{path}: {}", got.text());
            got.header("x-caravan-total").unwrap().to_owned()
        }
    };
    for list in ["/v1/jobs?namespace=*&count=true", "/v1/volumes?type=csi&namespace=*&count=true"] {
        assert_ne!(total(list, tenants.a.clone()).await, "0", "{list}");
        assert_eq!(total(list, tenants.b.clone()).await, "0", "{list}");
    }
    // Lists without pages have totals too.
    for list in ["/v1/plugins?type=csi&count=true", "/v1/namespaces?count=true"] {
        assert_ne!(total(list, tenants.root.clone()).await, "0", "{list}");
    }
    assert_eq!(
        total("/v1/jobs?namespace=*&count=true&filter=Priority%20%3D%3D%201", tenants.root.clone()).await,
        "0"
    );
    let wrong =
        tenants.ask(&Method::GET, "/v1/jobs?count=perhaps", &Value::Null, &tenants.root).await.unwrap();
    assert_eq!((wrong.status.as_u16(), wrong.text().contains("`count`")), (400, true), "{}", wrong.text());
    let list = "/v1/volumes?type=csi&claims=true&namespace=*";
    let rows = tenants.ask(&Method::GET, list, &Value::Null, &tenants.a).await.unwrap().json();
    assert_eq!(
        (&rows[0]["CaravanPhase"], rows[0]["CaravanClaims"].is_array()),
        (&json!("ready"), true),
        "{rows}"
    );
}

#[tokio::test]
async fn allocations_are_narrowed_to_a_job_and_a_node() {
    let tenants = Tenants::start().await;
    let total = |query: String| {
        let tenants = &tenants;
        async move {
            let path = format!("/v1/allocations?count=true&{query}");
            let got = tenants.ask(&Method::GET, &path, &Value::Null, &tenants.root).await.unwrap();
            assert_eq!(got.status, 200, "{path}: {}", got.text());
            got.header("x-caravan-total").unwrap().to_owned()
        }
    };
    let all =
        tenants.ask(&Method::GET, "/v1/allocations?namespace=*", &Value::Null, &tenants.root).await.unwrap();
    let row = all.json()[0].clone();
    let (job, node) = (row["JobID"].as_str().unwrap(), row["NodeID"].as_str().unwrap());
    for (query, count) in [
        (format!("namespace=team-a&job_id={job}"), "1"),
        (format!("namespace=*&job_id={job}"), "1"),
        (format!("namespace=*&node_id={node}"), "1"),
        (format!("namespace=*&job_id={job}&node_id={node}&sort=-status"), "1"),
        (format!("namespace=team-a&job_id={job}&node_id=other"), "0"),
        (format!("namespace=team-b&job_id={job}"), "0"),
        ("namespace=*&job_id=other".to_owned(), "0"),
    ] {
        assert_eq!(total(query.clone()).await, count, "{query}");
    }
}

#[tokio::test]
async fn pages_under_an_order_are_the_list() {
    let api = Api::start().await;
    let job = |id: &str, priority: u64| {
        json!({"Job": {"ID": id, "Name": id, "Type": "batch", "Priority": priority, "TaskGroups": [{"Name": "g", "Count": 1,
            "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}]}]}})
    };
    for (id, priority) in [("delta", 40), ("alpha", 60), ("echo", 40), ("bravo", 60), ("charlie", 50)] {
        let got = api.web.put("/v1/jobs", &job(id, priority)).await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    for list in ["/v1/jobs?namespace=*", "/v1/jobs/statuses?namespace=*"] {
        for size in [1, 2, 5] {
            let order = |sort: &str| format!("{list}&sort={sort}");
            assert_eq!(
                pages(&api, &order("-priority,name"), size).await,
                ["alpha", "bravo", "charlie", "delta", "echo"]
            );
            assert_eq!(
                pages(&api, &order("priority,-name"), size).await,
                ["echo", "delta", "charlie", "bravo", "alpha"]
            );
        }
    }
    // The default order of the statuses is unchanged: newest change first.
    assert_eq!(ids(&api.web.get("/v1/jobs/statuses?namespace=*").await)[0], "charlie");
    let evals = api.web.get("/v1/evaluations?sort=-job&count=true&per_page=2").await;
    let total: usize = evals.header("x-caravan-total").unwrap().parse().unwrap();
    assert!(total >= 5 && evals.json().as_array().map(Vec::len) == Some(2), "{total}");
    assert_eq!(evals.json()[0]["JobID"], json!("echo"));
}
