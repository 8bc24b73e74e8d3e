//! An example that follows a job through an agent from its registration to its end: `caravan agent -dev` in one
//! terminal, `cargo run -p caravan-sdk --example session` in another.

use caravan_sdk::{
    Client, Config, DeregisterOptions, Error, QueryOptions, RegisterOptions, Retry, ScaleRequest, Watch,
};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut config = Config::from_env()?;
    config.retry = Retry::times(5);
    let client = Client::new(config);
    let query = QueryOptions::new();

    let job = json!({
        "ID": "example", "Type": "service", "Datacenters": ["*"],
        "TaskGroups": [{ "Name": "work", "Tasks": [{
            "Name": "talk", "Driver": "raw_exec",
            "Config": { "command": "/bin/sh", "args": ["-c", "echo hello; exec sleep 600"] },
            "Resources": { "CPU": 20, "MemoryMB": 16 },
        }]}],
    });
    let answer = client.jobs().register(&job, &RegisterOptions::default(), &query).await?.value;
    println!("registered by evaluation {}", answer.eval_id);

    running(&client, 1).await?;
    let request = ScaleRequest::count("work", 2, "one is lonely");
    match client.scaling().scale("example", &request, &query).await {
        Ok(_) => running(&client, 2).await?,
        Err(Error::Status { code: 400, body, .. }) => println!("not scaled: {body}"),
        Err(error) => return Err(error),
    }
    client
        .jobs()
        .deregister("example", DeregisterOptions { purge: true, ..Default::default() }, &query)
        .await?;
    println!("stopped");
    Ok(())
}

/// Waits, without polling, until `count` allocations run.
async fn running(client: &Client, count: usize) -> Result<(), Error> {
    let mut watch = Watch::new(QueryOptions::new());
    loop {
        let answer = client.jobs().allocations("example", false, watch.query()).await?;
        if !watch.saw(&answer.meta) {
            continue;
        }
        let live = answer.value.iter().filter(|alloc| alloc.client_status.as_str() == "running").count();
        println!("{live} of {count} run");
        if live >= count {
            return Ok(());
        }
    }
}
