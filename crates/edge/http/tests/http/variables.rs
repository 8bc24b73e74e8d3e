//! Variables, compared with the recorded exchanges in order.

use crate::harness::Api;
use crate::shape::exchanges;
use http::Method;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Replaces the values that differ from run to run.
fn timeless(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(timeless).collect(),
        Value::Object(map) => {
            let varies = ["CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime"];
            let entry = |(key, value): (&String, &Value)| match varies.contains(&key.as_str()) {
                true => (key.clone(), json!(0)),
                false => (key.clone(), timeless(value)),
            };
            Value::Object(map.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}

/// Replaces the id of the server's own lock by the recorded one.
fn with_lock(value: &Value, lock: Option<&(String, String)>) -> Value {
    match lock {
        Some((recorded, own)) => serde_json::from_str(&value.to_string().replace(own, recorded)).unwrap(),
        None => value.clone(),
    }
}

#[tokio::test]
async fn variables_answer_as_recorded() {
    let api = Api::start().await;
    let mut indexes: HashMap<String, u64> = HashMap::new();
    let mut lock: Option<(String, String)> = None;
    let mut compared = 0;
    for exchange in exchanges("variables") {
        let (method, path) = (exchange["method"].as_str().unwrap(), exchange["path"].as_str().unwrap());
        let query = exchange.get("query").and_then(Value::as_object).cloned().unwrap_or_default();
        let pairs: Vec<String> = query
            .iter()
            .map(|(key, value)| {
                let text = value.as_str().unwrap();
                let known = indexes.get(text).map(u64::to_string);
                let text = text.replace(' ', "%20").replace('"', "%22");
                format!("{key}={}", if key == "cas" { known.unwrap_or(text) } else { text })
            })
            .collect();
        let query = match exchange.get("query").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => pairs.join("&"),
        };
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let body = match exchange.get("request_body") {
            None | Some(Value::Null) => String::new(),
            Some(body) => body.to_string().replace("(70000 times x)", &"x".repeat(70_000)),
        };
        let body = match &lock {
            Some((recorded, own)) => body.replace(recorded, own),
            None => body,
        };
        let got = api.web.send(method.parse::<Method>().unwrap(), &target, body.into_bytes()).await;
        let what = format!("{method} {target}");
        assert_eq!(json!(got.status.as_u16()), exchange["status"], "{what}: {}", got.text());
        let want = exchange["headers"].get("Content-Type").and_then(Value::as_str);
        assert_eq!(got.header("content-type"), want, "{what}");
        match exchange.get("body") {
            Some(want) => {
                if let (Some(recorded), Some(own)) =
                    (want["Lock"]["ID"].as_str(), got.json()["Lock"]["ID"].as_str())
                {
                    lock.get_or_insert((recorded.to_owned(), own.to_owned()));
                }
                assert_eq!(timeless(&with_lock(&got.json(), lock.as_ref())), timeless(want), "{what}");
                if let (Some(recorded), Some(index)) =
                    (want["ModifyIndex"].as_u64(), got.json()["ModifyIndex"].as_u64())
                {
                    indexes.insert(recorded.to_string(), index);
                }
            }
            None => {
                let want = exchange["body_text"].as_str().unwrap_or_default();
                match serde_json::from_str::<Value>(want) {
                    Ok(want) => assert_eq!(timeless(&got.json()), timeless(&want), "{what}"),
                    Err(_) => assert_eq!(got.text(), want, "{what}"),
                }
            }
        }
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

#[tokio::test]
async fn a_reader_waits_for_its_variable() {
    let api = Api::start().await;
    let missing = api.web.get("/v1/var/a").await;
    let path = format!("/v1/var/a?index={}&wait=60s", missing.index());
    let web = api.web.clone();
    let waiting = tokio::spawn(async move { web.get(&path).await });
    tokio::task::yield_now().await;
    api.web.put("/v1/var/a", &json!({"Items": {"k": "v"}})).await;
    let got = tokio::time::timeout(std::time::Duration::from_secs(20), waiting).await.unwrap().unwrap();
    assert_eq!(got.json()["Items"], json!({"k": "v"}));
    for bad in [json!({"Items": {"k": 1}}), json!({"Items": "hunter2"})] {
        let got = api.web.put("/v1/var/a", &bad).await;
        assert_eq!(got.status, 400);
        assert!(!got.text().contains("hunter2"), "no value is repeated");
    }
}
