//! The networks of groups: containers that hold a namespace.

use crate::*;
use caravan_drivers::NetworkRequest;

fn world(kind: EngineKind) -> World {
    let mut world = World::with_options(kind, json!({"gc": {"image": false}}));
    world.options["infra_image"] = world.engine.import_idle().unwrap().into();
    world
}

fn request(world: &World) -> NetworkRequest {
    NetworkRequest { alloc_id: world.alloc.clone(), hostname: "group-host".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tasks_of_a_group_share_a_network() {
    for kind in [EngineKind::Docker, EngineKind::Podman] {
        let world = world(kind);
        let driver = world.docker();
        let network = driver.create_network(&request(&world)).await.unwrap();
        assert!(caravan_sys::netns::is_held(&network.path).unwrap(), "{network:?}");
        assert_eq!(network.hosts.as_ref().unwrap().hostname, "group-host");
        assert_eq!(world.engine.containers().unwrap(), [format!("nomad_init_{}", world.alloc)]);
        let again = driver.create_network(&request(&world)).await.unwrap();
        assert_eq!(again, network, "a network is made once");

        let join = |name: &str, script: &str, more: Value| {
            let mut config = world.script(name, script);
            let block = config.driver_config.as_object_mut().unwrap();
            block.remove("network_mode");
            block.extend(more.as_object().unwrap().clone());
            config.network = Some(network.clone());
            config
        };
        let web = join("web", "while true; do echo hello | nc -l -p 8080; done", json!({}));
        let hosts = json!({"extra_hosts": ["db:10.0.0.9"], "dns_servers": ["10.0.0.1"]});
        let script = "hostname; until nc 127.0.0.1 8080; do sleep 0.05; done; \
                      grep db /etc/hosts; cat /etc/resolv.conf";
        let beside = join("beside", script, hosts);
        let ids = [web.id.clone(), beside.id.clone()];
        driver.start(web).await.unwrap();
        driver.start(beside).await.unwrap();
        let ended = tokio::time::timeout(TIMEOUT, driver.wait(&ids[1])).await.unwrap().unwrap();
        assert!(ended.is_success(), "{ended:?}");
        until("the output", || world.output("beside").lines().count() >= 4).await;
        let output = world.output("beside");
        let (hostname, rest) = output.split_once('\n').unwrap();
        assert_eq!(rest, "hello\n10.0.0.9 db\nnameserver 10.0.0.1\n", "{kind:?}");
        // Containers of podman that join a network keep their own name.
        assert!(hostname == "group-host" || kind == EngineKind::Podman, "{hostname}");

        // The agent restarts: the network is the same one, and it is destroyed once.
        let next = world.docker();
        assert_eq!(next.create_network(&request(&world)).await.unwrap(), network);
        for id in &ids {
            driver.destroy(id, true).await.unwrap();
        }
        next.destroy_network(&world.alloc, Some(&network)).await.unwrap();
        assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new());
        next.destroy_network(&world.alloc, None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_cannot_be_made_says_why() {
    let world = World::with(json!({"infra_image": ContainerEngine::IMAGE}));
    let driver = world.docker();
    // The program of the image is a shell without input.
    let error = driver.create_network(&request(&world)).await.unwrap_err();
    assert!(error.to_string().contains("infra_image"), "{error}");
    assert_eq!(world.engine.containers().unwrap(), Vec::<String>::new());
    // A container of that name that another program made stays.
    let name = format!("nomad_init_{}", world.alloc);
    world
        .engine
        .docker(&["create", "--network", "none", "--name", &name, ContainerEngine::IMAGE, "sh"])
        .unwrap();
    let error = driver.create_network(&request(&world)).await.unwrap_err();
    assert!(error.to_string().contains("another owner"), "{error}");
    assert!(driver.destroy_network(&world.alloc, None).await.is_err());
    assert_eq!(world.engine.containers().unwrap(), [name]);
}
