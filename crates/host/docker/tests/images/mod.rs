//! Images: pulled, loaded and removed.

use crate::*;
use caravan_testkit::Registry;
use std::net::TcpListener;

/// Creates a separate image: [`ContainerEngine::IMAGE`] with another command.
fn own_image(world: &World, name: &str) {
    let engine = &world.engine;
    engine
        .docker(&["create", "--network", "none", "--name", "source", ContainerEngine::IMAGE, "true"])
        .unwrap();
    let change = format!("LABEL own={name}");
    engine.docker(&["commit", "--change", &change, "source", name]).unwrap();
    engine.docker(&["rm", "source"]).unwrap();
}

fn is_there(world: &World, image: &str) -> bool {
    world.engine.docker(&["image", "inspect", image]).is_ok()
}

fn auth(password: &str) -> Value {
    json!({"username": Registry::USER, "password": password})
}

async fn run(driver: &DockerDriver, config: TaskConfig) -> std::result::Result<(), Error> {
    let id = config.id.clone();
    driver.start(config).await?;
    let result = tokio::time::timeout(TIMEOUT, driver.wait(&id)).await.unwrap()?;
    assert!(result.is_success(), "{result:?}");
    driver.destroy(&id, false).await
}

async fn pulls_with_credentials(kind: EngineKind) {
    let mut world = World::with_options(kind, json!({}));
    let registry = Registry::start().unwrap();
    world.engine.trust(&registry).unwrap();
    let image = registry.take(&world.engine, ContainerEngine::IMAGE, "private:1").unwrap();
    let driver = world.docker();
    let config = |more: Value| {
        let mut all = json!({"image": image, "command": "true", "force_pull": true});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.config("t", all)
    };
    let missing = image.replace("private", "absent");
    let nothing =
        format!("127.0.0.1:{}/x:1", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    for (more, words) in [
        (json!({}), &["basic auth", "unauthorized", "authentication required"][..]),
        (json!({"auth": auth("wrong")}), &["unauthorized", "authentication required", "denied"]),
        (json!({"image": missing, "auth": auth(Registry::PASSWORD)}), &["manifest unknown", "not found"]),
        (json!({"image": nothing}), &["connection refused"]),
    ] {
        let error = driver.start(config(more)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("Failed to pull `127.0.0.1:"), "{text}");
        assert!(words.iter().any(|word| text.contains(word)), "{text}");
        assert!(!text.contains('\n') && !text.contains(Registry::PASSWORD), "{text}");
        assert!(matches!(error, Error::Start { recoverable: true, .. }), "{error:?}");
    }
    run(&driver, config(json!({"auth": auth(Registry::PASSWORD)}))).await.unwrap();
    assert!(is_there(&world, &image));
    // The file of the docker command.
    let file = registry.login().unwrap().join("config.json");
    let mut options = DockerOptions::read(&world.options).unwrap();
    options.auth.config = Some(file);
    run(&world.docker_with(options.clone()), config(json!({}))).await.unwrap();
    // The task's own credentials come first.
    let error =
        world.docker_with(options.clone()).start(config(json!({"auth": auth("wrong")}))).await.unwrap_err();
    assert!(error.to_string().contains("Failed to pull"), "{error}");
    // A file that cannot be read ends the start, unless the job sets `auth_soft_fail`.
    options.auth.config = Some("/no/such/file".into());
    let driver = world.docker_with(options);
    let error = driver.start(config(json!({}))).await.unwrap_err();
    assert!(error.to_string().contains("Failed to find docker auth for repo"), "{error}");
    assert!(matches!(error, Error::Start { recoverable: false, .. }), "{error:?}");
    let error = driver.start(config(json!({"auth_soft_fail": true}))).await.unwrap_err();
    assert!(error.to_string().contains("Failed to pull"), "{error}");
    assert!(world.engine.containers().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_gets_the_credentials_of_the_job_or_the_node() {
    pulls_with_credentials(EngineKind::Docker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_gets_credentials_from_podman() {
    pulls_with_credentials(EngineKind::Podman).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_once_for_all_tasks() {
    let world = World::new();
    let registry = Registry::start().unwrap();
    own_image(&world, "own:1");
    let image = registry.take(&world.engine, "own:1", "own:1").unwrap();
    world.engine.docker(&["rmi", "own:1"]).unwrap();
    let driver = world.docker();
    let mut events = driver.events().unwrap();
    let configs: Vec<TaskConfig> = ["a", "b", "c", "d"]
        .map(|name| {
            world.config(name, json!({"image": image, "command": "true", "auth": auth(Registry::PASSWORD)}))
        })
        .into();
    // The registry answers once all four wait. Otherwise the last one could find the image that the first one pulled.
    registry.suspend().unwrap();
    let starts = configs.iter().map(|config| driver.start(config.clone()));
    let reports = async {
        let mut reported: Vec<String> = Vec::new();
        while reported.len() < configs.len() {
            let event = tokio::time::timeout(TIMEOUT, events.recv()).await.unwrap().unwrap();
            assert_eq!(event.message, "Downloading image");
            assert_eq!(event.details["image"], image);
            reported.push(event.task_name);
        }
        registry.resume().unwrap();
        reported
    };
    let (started, mut reported) = tokio::join!(futures::future::join_all(starts), reports);
    for started in started {
        started.unwrap();
    }
    reported.sort();
    assert_eq!(reported, ["a", "b", "c", "d"]);
    assert!(events.try_recv().is_err(), "each task reports once");
    let listed =
        ["events", "--since", "10m", "--until", "0s", "--filter", "event=pull", "--format", "{{.Actor.ID}}"];
    assert_eq!(world.engine.docker(&listed).unwrap(), image);
    for config in configs {
        driver.destroy(&config.id, true).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_ends_at_its_time_limit() {
    let world = World::new();
    // The registry accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let image = format!("{}/x:1", silent.local_addr().unwrap());
    let driver = world.docker();
    let config = world.config("t", json!({"image": image, "image_pull_timeout": "1s"}));
    let error = driver.start(config).await.unwrap_err();
    assert_eq!(error.to_string(), format!("Failed to pull `{image}`: it took longer than 1s"));
    assert!(matches!(error, Error::Start { recoverable: true, .. }), "{error:?}");
    let mut options = DockerOptions::read(&world.options).unwrap();
    options.pull_activity_timeout = Duration::from_secs(1);
    let config = world.config("t", json!({"image": image}));
    let error = world.docker_with(options).start(config).await.unwrap_err();
    assert_eq!(error.to_string(), format!("Failed to pull `{image}`: there was no progress for 1s"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_loaded() {
    let world = World::new();
    own_image(&world, "own:1");
    let driver = world.docker();
    let config = |more: Value| {
        let mut all = json!({"image": "own:1", "load": "image.tar", "command": "true"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.config("t", all)
    };
    let local = config(json!({})).dirs.task_dir.join("local");
    let archive = local.join("image.tar");
    world.engine.docker(&["save", "-o", archive.to_str().unwrap(), "own:1"]).unwrap();
    world.engine.docker(&["rmi", "own:1"]).unwrap();
    std::os::unix::fs::symlink("image.tar", local.join("link.tar")).unwrap();
    std::fs::write(local.join("bad.tar"), "no archive").unwrap();
    for (more, words) in [
        (json!({"load": "absent.tar"}), "unable to open image archive"),
        (json!({"load": "../local/image.tar"}), "unable to open image archive"),
        (json!({"load": "link.tar"}), "unable to open image archive"),
        (json!({"load": "bad.tar"}), "unable to load image archive \"bad.tar\""),
        (json!({"image": "other:1"}), "the archive \"image.tar\" has no image \"other:1\""),
    ] {
        let error = driver.start(config(more)).await.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(matches!(error, Error::Start { recoverable: false, .. }), "{error:?}");
    }
    run(&driver, config(json!({}))).await.unwrap();
    // The image is present, so the archive is not opened.
    std::fs::remove_file(&archive).unwrap();
    run(&driver, config(json!({}))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unused_image_is_removed() {
    let world = World::new();
    own_image(&world, "own:1");
    let mut options = DockerOptions::read(&world.options).unwrap();
    options.gc.image_delay = Duration::from_millis(200);
    let driver = world.docker_with(options.clone());
    let config =
        |name: &str| world.config(name, json!({"image": "own:1", "command": "sh", "args": ["-c", FOREVER]}));
    let (first, second) = (config("a"), config("b"));
    driver.start(first.clone()).await.unwrap();
    let handle = driver.start(second.clone()).await.unwrap();
    driver.destroy(&first.id, true).await.unwrap();
    // The second task of an agent that ended uses the image as well.
    driver.shutdown().await;
    drop(driver);
    let driver = world.docker_with(options.clone());
    driver.recover(handle).await.unwrap();
    driver.start(first.clone()).await.unwrap();
    driver.destroy(&first.id, true).await.unwrap();
    assert!(is_there(&world, "own:1"), "a task uses it");
    driver.destroy(&second.id, true).await.unwrap();
    until("the image to be removed", || !is_there(&world, "own:1")).await;
    assert!(is_there(&world, ContainerEngine::IMAGE));
    // The node may keep images and containers.
    own_image(&world, "own:1");
    options.gc.image = false;
    options.gc.container = false;
    let driver = world.docker_with(options);
    driver.start(first.clone()).await.unwrap();
    driver.stop(&first.id, TIMEOUT, None).await.unwrap();
    driver.destroy(&first.id, false).await.unwrap();
    assert!(is_there(&world, "own:1"));
    assert_eq!(world.engine.containers().unwrap(), [format!("a-{}", world.alloc)], "it keeps containers");
}
