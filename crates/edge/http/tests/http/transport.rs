//! Properties of every route: paths, methods, headers, errors.

use crate::harness::Api;
use http::Method;
use serde_json::json;

#[tokio::test]
async fn unknown_paths_and_methods_differ() {
    let api = Api::start().await;
    for path in ["/v1/nothing-here", "/v1/jobs/", "/v1/", "/elsewhere", "/v1/event/streams"] {
        let got = api.web.get(path).await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (404, ""), "{path}");
        assert_eq!(got.header("content-type"), None, "{path}");
        assert_eq!(got.header("vary"), Some("Accept-Encoding"));
    }
    for (method, path) in [
        (Method::DELETE, "/v1/jobs"),
        (Method::POST, "/v1/allocations"),
        (Method::POST, "/v1/volume/csi/x"),
        (Method::PUT, "/v1/volume/csi/x/delete"),
        (Method::GET, "/v1/validate/job"),
        (Method::OPTIONS, "/v1/jobs"),
    ] {
        let got = api.web.send(method.clone(), path, Vec::new()).await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (405, "Invalid method"), "{method} {path}");
    }
    let root = api.web.get("/?a=b").await;
    assert_eq!((root.status.as_u16(), root.header("location")), (307, Some("/ui/?a=b")));
    assert_eq!(api.web.get("/ui/").await.status, 200);
    let unclean = api.web.get("/v1//jobs?prefix=a").await;
    assert_eq!((unclean.status.as_u16(), unclean.header("location")), (307, Some("/v1/jobs?prefix=a")));
    assert_eq!(api.web.send(Method::HEAD, "/v1/jobs", Vec::new()).await.status, 405);
}

#[tokio::test]
async fn parameters_are_checked_in_the_recorded_words() {
    let api = Api::start().await;
    for (query, status, text) in [
        ("index=ten", 400, "Invalid index"),
        ("wait=10q", 400, "Invalid wait time"),
        ("stale=maybe", 400, "Expect `true` or `false` for `stale` query string parameter"),
        ("per_page=x", 400, "Expect a number for `per_page` query string parameter"),
        ("region=mars", 500, "No path to region"),
    ] {
        let got = api.web.get(&format!("/v1/jobs?{query}")).await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (status, text), "{query}");
        assert_eq!(got.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    for query in ["stale", "stale=false", "region=global"] {
        assert_eq!(api.web.get(&format!("/v1/jobs?{query}")).await.status, 200, "{query}");
    }
    let uuid = api.web.get("/v1/allocation/short").await;
    assert_eq!(uuid.text(), "alloc lookup failed: index error: UUID must be 36 characters");
    let prefix = api.web.get("/v1/allocations?prefix=zz").await;
    assert_eq!(
        prefix.text(),
        "alloc lookup failed: index error: Invalid UUID: encoding/hex: invalid byte: U+007A 'z'"
    );
}

#[tokio::test]
async fn ids_may_contain_slashes_escaped_or_not() {
    let api = Api::start().await;
    let job = json!({"ID": "a/b", "Type": "batch", "Datacenters": ["dc1"], "TaskGroups": [
        {"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]});
    let got = api.web.put("/v1/jobs", &json!({"Job": job})).await;
    assert_eq!(got.status, 200, "{}", got.text());
    for path in ["/v1/job/a/b", "/v1/job/a%2Fb"] {
        assert_eq!(api.web.get(path).await.json()["ID"], "a/b", "{path}");
        assert_eq!(api.web.get(&format!("{path}/summary")).await.json()["JobID"], "a/b", "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let api = Api::start().await;
    let got = api.web.send(Method::PUT, "/v1/jobs", vec![b' '; caravan_http::MAX_BODY + 1]).await;
    assert_eq!((got.status.as_u16(), got.text().as_str()), (413, "the request body is larger than 16 MiB"));
}

#[tokio::test]
async fn answers_are_packed_on_request() {
    use std::io::Read;
    let api = Api::start().await;
    let plain = api.web.get("/v1/jobs").await;
    assert_eq!(plain.header("content-encoding"), None);
    for path in ["/v1/jobs", "/v1/agent/self", "/v1/job/nope"] {
        let got = api.web.send_with(Method::GET, path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(got.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(got.header("vary"), Some("Accept-Encoding"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&got.body[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, api.web.get(path).await.text(), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_see_what_they_may() {
    let api = Api::start().await;
    let origin = ("origin", "https://ui.example.org");
    let asked = [origin, ("access-control-request-method", "PUT")];
    let allowed = api.web.send_with(Method::OPTIONS, "/v1/var/app/config", &asked).await;
    assert_eq!((allowed.status.as_u16(), allowed.header("access-control-allow-methods")), (204, Some("PUT")));
    assert_eq!(allowed.header("access-control-allow-origin"), Some("*"));
    let asked = [origin, ("access-control-request-method", "PATCH")];
    let refused = api.web.send_with(Method::OPTIONS, "/v1/var/app/config", &asked).await;
    assert_eq!(refused.header("access-control-allow-methods"), None);
    let shared = api.web.send_with(Method::GET, "/v1/vars", &[origin]).await;
    assert_eq!(shared.header("access-control-allow-origin"), Some("*"));
    let own = api.web.send_with(Method::GET, "/v1/jobs", &[origin]).await;
    assert_eq!(own.header("access-control-allow-origin"), None);
    assert_eq!(api.web.send(Method::OPTIONS, "/v1/jobs", Vec::new()).await.status, 405);
}

#[tokio::test]
async fn an_operators_headers_are_on_every_answer() {
    let api = Api::start().await;
    let pairs = [("X-Frame-Options".to_owned(), "DENY".to_owned())];
    let headers = caravan_http::Transport::read_headers(pairs.iter().map(|(k, v)| (k, v))).unwrap();
    let state = caravan_http::HttpState {
        server: Some(api.server.clone()),
        info: api.info.clone(),
        transport: std::sync::Arc::new(caravan_http::Transport { headers, ..Default::default() }),
        ..Default::default()
    };
    let web = crate::harness::serve(state, tokio_util::sync::CancellationToken::new()).await;
    for path in ["/v1/jobs", "/v1/nothing-here", "/", "/v1/job/nope"] {
        assert_eq!(web.get(path).await.header("x-frame-options"), Some("DENY"), "{path}");
    }
}

#[tokio::test]
async fn a_kept_answer_never_outlives_its_state() {
    let api = Api::start().await;
    assert_eq!(api.web.get("/v1/jobs").await.text(), "[]");
    for n in 0..20 {
        let job = json!({"ID": format!("j{n}"), "Type": "batch", "Datacenters": ["dc1"], "TaskGroups": [
            {"Name": "g", "Tasks": [{"Name": "t", "Driver": "mock_driver"}]}]});
        assert_eq!(api.web.put("/v1/jobs", &json!({"Job": job})).await.status, 200);
        for _ in 0..2 {
            assert_eq!(api.web.get("/v1/jobs").await.json().as_array().unwrap().len(), n + 1);
        }
    }
}
