//! The plugins that the catalog finds, skips and refuses.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn each_bad_plugin_is_named_with_its_reason() {
    let handshake = "#!/bin/sh\necho '1|2|unix|/nowhere|grpc|'\nexec sleep 100000\n";
    let world = World::new()
        .with_script("mute", "#!/bin/sh\necho 'no config' >&2\nexit 3\n", 0o755)
        .with_script("chatty", "#!/bin/sh\necho hello\nexec sleep 100000\n", 0o755)
        .with_script("old", "#!/bin/sh\necho '1|1|unix|/s|grpc|'\n", 0o755)
        .with_script("netrpc", "#!/bin/sh\necho '1|2|unix|/s|netrpc'\n", 0o755)
        .with_script("nobody", handshake, 0o755)
        .with_script("open", "#!/bin/sh\n", 0o777)
        .with_script("notes", "text", 0o644)
        .with_script("later", "#!/bin/sh\necho '2|2|unix|/s|grpc|'\n", 0o755)
        .with_script("pipe", "#!/bin/sh\necho '1|2|pipe|/s|grpc|'\n", 0o755)
        .with_script("gone", "", 0o755);
    std::fs::remove_file(world.program("gone")).unwrap();
    let catalog = world.catalog().await;
    let reason = |name: &str| catalog.broken.get(name).map(ToString::to_string).unwrap_or_default();
    for (name, words) in [
        ("mute", "ended before its handshake (exit status: 3): no config"),
        ("chatty", "is not a plugin: its first line is \"hello\""),
        ("old", "version \"1\" of the protocol"),
        ("netrpc", "speaks \"netrpc\""),
        ("nobody", "cannot"),
        ("open", "can be written by every user"),
        ("notes", "is not executable"),
        ("later", "version \"2\" of the handshake"),
        ("pipe", "a network of kind \"pipe\""),
        ("gone", "plugins/gone does not exist"),
    ] {
        assert!(reason(name).contains(words), "{name}: {}", reason(name));
        let found = driver(&catalog, name).fingerprint().await;
        assert_eq!(found.state, Health::Undetected);
        assert!(found.description.contains(name) && found.description.contains(words), "{found:?}");
    }
    assert_eq!(driver(&catalog, "example").fingerprint().await.state, Health::Healthy);
    let required = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        catalog.missing(&names).map(|(name, _)| name.to_owned())
    };
    assert_eq!(required(&[DRIVER]), None);
    assert_eq!(required(&["old"]).as_deref(), Some("old"));
    assert!(required(&["*"]).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_fit_is_refused_by_name() {
    let mut world = World::new().with(DRIVER, json!({"enabledd": true}));
    let block = world.blocks.get_mut(DRIVER).unwrap();
    block.places = [("".into(), "a.hcl:1,1-9".into()), ("enabledd".into(), "a.hcl:3,5-13".into())].into();
    let catalog = world.catalog().await;
    let error = catalog.broken[DRIVER].to_string();
    assert!(error.contains("a.hcl:3,5-13: ") && error.contains("\"enabledd\""), "{error}");
    assert!(error.contains("Did you mean \"enabled\"?"), "{error}");
    let world = World::new();
    let driver = world.external().await;
    let error = driver.validate(&json!({"comand": "x"})).unwrap_err().to_string();
    assert!(error.contains("comand") && error.contains("command"), "{error}");
    for (config, words) in [
        (json!({"args": ["x"]}), "\"command\""),
        (json!({"command": ["x"]}), "command"),
        (json!({"command": "x", "args": {"a": "b"}}), "args"),
    ] {
        let error = driver.validate(&config).unwrap_err().to_string();
        assert!(error.contains(words), "{config}: {error}");
    }
    let wrong = World::new().with(DRIVER, json!({"enabled": "perhaps"})).catalog().await;
    let error = wrong.broken[DRIVER].to_string();
    assert!(error.contains("enabled") && error.contains("bool"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn features_follow_the_configuration() {
    let mut world = World::new();
    assert!(!world.external().await.capabilities().dynamic_users);
    let block = world.blocks.get_mut(DRIVER).unwrap();
    block.config = json!({"dynamic_users": true});
    assert!(world.external().await.capabilities().dynamic_users, "a record of before counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_without_a_block_is_not_started() {
    let mut world = World::new();
    world.blocks.clear();
    let catalog = world.catalog().await;
    assert!(catalog.drivers.is_empty() && catalog.broken.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_not_configured_any_more_is_ended() {
    let mut world = World::new();
    let driver = world.external().await;
    let pid = world.pid(DRIVER);
    drop(driver);
    let blocks = std::mem::take(&mut world.blocks);
    world.catalog().await;
    until("the end of the plugin", async || !runs(pid)).await;
    world.blocks = blocks;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_programs_of_one_plugin_one_is_used() {
    let mut world = World::new();
    std::fs::copy(world.program(DRIVER), world.program("copy")).unwrap();
    world.blocks.insert("copy".into(), Block::default());
    let catalog = world.catalog().await;
    assert_eq!(catalog.drivers.len(), 1, "{:?}", catalog.drivers);
    let running = ["copy", DRIVER]
        .iter()
        .filter(|name| world.dir.path().join("state").join(name).join("process.json").exists());
    assert_eq!(running.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_not_allowed_does_not_run() {
    let world = World::new();
    let mut options = world.options();
    options.allowed.never = vec!["example".into()];
    let catalog = Catalog::load(&options).await;
    assert!(catalog.drivers.is_empty());
    assert!(!world.dir.path().join("state").join(DRIVER).join("process.json").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_gets_its_own_directory_and_little_of_the_environment() {
    let world = World::new();
    let _driver = world.external().await;
    let environment = std::fs::read(format!("/proc/{}/environ", world.pid(DRIVER))).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let names: Vec<&str> =
        environment.split('\0').filter_map(|pair| pair.split_once('=').map(|(name, _)| name)).collect();
    assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
    let run = world.dir.path().join("state").join(DRIVER).join("run");
    assert!(environment.contains(&format!("PLUGIN_UNIX_SOCKET_DIR={}", run.display())));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&run), 0o700);
    let sockets: Vec<PathBuf> = std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(sockets.len(), 1);
    assert_eq!(mode(&sockets[0]), 0o600);
}
