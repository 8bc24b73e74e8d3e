use super::*;
use serde_json::json;

fn read(config: Value) -> Result<Config, String> {
    Config::read(&config, &QemuOptions::default()).map_err(|error| error.to_string())
}

fn machine() -> Machine<'static> {
    Machine {
        image: "/a/t/local/i.img",
        memory_mb: 512,
        processors: &Processors::Any,
        monitor: None,
        guest_agent: None,
        forwards: Vec::new(),
    }
}

fn arguments(config: Value, machine: &Machine<'_>) -> Result<String, String> {
    read(config)?.arguments(machine).map(|list| list.join(" ")).map_err(|error| error.to_string())
}

const USUAL: &str = "-machine type=pc,accel=tcg -name i.img -m 512M \
                     -drive file=/a/t/local/i.img,if=ide,id=image0 -nographic";

#[test]
fn a_plain_machine_has_the_defaults() {
    assert_eq!(arguments(json!({"image_path": "local/i.img"}), &machine()).unwrap(), USUAL);
    let empty = json!({"image_path": "local/i.img", "emulator": "", "accelerator": "", "port_map": []});
    assert_eq!(arguments(empty, &machine()).unwrap(), USUAL);
}

#[test]
fn optional_parts_come_in_their_order() {
    let config = json!({
        "image_path": "local/i.img", "machine_type": "q35", "drive_interface": "virtio",
        "graceful_shutdown": true, "guest_agent": "true", "args": ["-vga", "none"], "port_map": [{"a": 80}],
    });
    let machine = Machine {
        monitor: Some("/a/t/qm.sock".into()),
        guest_agent: Some("/a/t/qa.sock".into()),
        forwards: vec![
            Forward { address: Some(Ipv4Addr::LOCALHOST), port: 8080, guest: 80 },
            Forward { address: None, port: 53, guest: 5353 },
        ],
        ..machine()
    };
    assert_eq!(
        arguments(config, &machine).unwrap(),
        "-machine type=q35,accel=tcg -name i.img -m 512M -drive file=/a/t/local/i.img,if=virtio,id=image0 \
         -nographic -monitor unix:/a/t/qm.sock,server=on,wait=off \
         -chardev socket,path=/a/t/qa.sock,server=on,wait=off,id=qga0 -device virtio-serial \
         -device virtserialport,chardev=qga0,name=org.qemu.guest_agent.0 -vga none \
         -netdev user,id=user.0,hostfwd=tcp:127.0.0.1:8080-:80,hostfwd=udp:127.0.0.1:8080-:80,\
         hostfwd=tcp::53-:5353,hostfwd=udp::53-:5353 -device virtio-net,netdev=user.0"
    );
}

#[test]
fn the_kernels_accelerator_uses_the_reserved_cores() {
    let own = Processors::Own("0-1,4".into());
    let with = |args: Value, processors| {
        let config = json!({"image_path": "local/i.img", "accelerator": "kvm", "args": args});
        let text = arguments(config, &Machine { processors, ..machine() }).unwrap();
        text.split_once("-nographic").unwrap().1.trim().to_owned()
    };
    assert_eq!(with(json!([]), &own), "-enable-kvm -smp 3");
    assert_eq!(with(json!(["-smp", "2"]), &own), "-enable-kvm -smp 2");
    assert_eq!(with(json!([]), &Processors::Only("0-1".into())), "-enable-kvm");
    assert_eq!((count("3"), count("0-x"), count("4-1")), (Some(1), None, None));
}

#[test]
fn a_path_adds_no_properties() {
    let machine = Machine { image: "/a/t/x,if=y", monitor: Some("/a,b/t/qm.sock".into()), ..machine() };
    let text = arguments(json!({"image_path": "x,if=y"}), &machine).unwrap();
    assert!(text.contains("-name x,,if=y ") && text.contains("file=/a/t/x,,if=y,if=ide"), "{text}");
    assert!(text.contains("unix:/a,,b/t/qm.sock,server=on"), "{text}");
}

#[test]
fn memory_and_socket_paths_have_bounds() {
    let with = |machine: Machine<'_>| arguments(json!({"image_path": "local/i.img"}), &machine);
    for memory_mb in [0, 127, 4_000_001] {
        assert_eq!(
            with(Machine { memory_mb, ..machine() }),
            Err("QEMU memory assignment out of bounds".to_owned())
        );
    }
    assert!(with(Machine { memory_mb: 128, ..machine() }).is_ok());
    let path = |length: usize| Some(PathBuf::from(format!("/{}", "s".repeat(length - 1))));
    assert!(with(Machine { guest_agent: path(108), ..machine() }).is_ok());
    for long in [Machine { monitor: path(109), ..machine() }, Machine { guest_agent: path(109), ..machine() }]
    {
        assert!(with(long).unwrap_err().contains("is longer than 108 bytes"));
    }
}

#[test]
fn wrong_configs_are_refused() {
    for (bad, needle) in [
        (json!({}), "\"image_path\" of driver qemu is required"),
        (json!({"image_path": "i", "emulator": "../sh"}), "'../sh' is not an allowed emulator"),
        (json!({"image_path": "i", "drive_interface": "usb"}), "Unsupported drive_interface"),
        (json!({"image_path": "i", "port_map": {"a": 0}}), "\"port_map\" of driver qemu must contain"),
        (json!({"image_path": "i", "port_map": {"a": "b"}}), "\"port_map\" of driver qemu must contain"),
        (json!({"image_path": "i", "command": "x"}), "no config key \"command\""),
    ] {
        assert!(read(bad.clone()).unwrap_err().contains(needle), "{bad}");
    }
}

#[test]
fn a_node_limits_options_and_emulators() {
    let options = QemuOptions {
        args_allowlist: vec!["-smp".into(), "-nodefaults".into()],
        emulators_allowlist: vec!["arm".into()],
        ..QemuOptions::default()
    };
    let read = |key: &str, value: Value| {
        let mut config = json!({"image_path": "i", "emulator": "qemu-system-arm"});
        config[key] = value;
        Config::read(&config, &options).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(read("args", json!(["-smp", "2", "-nodefaults"])), Ok(()));
    for (args, word) in [
        (json!(["-smp", "2", "-drive", "file=/x"]), "-drive"),
        (json!(["--smp", "2"]), "--smp"),
        (json!(["/disk"]), "/disk"),
        (json!(["-smp", "2", "/disk"]), "/disk"),
    ] {
        assert_eq!(read("args", args), Err(format!("{word:?} is not in args_allowlist")));
    }
    assert_eq!(read("emulator", json!("x86_64")), Err("'x86_64' is not an allowed emulator".to_owned()));
    let error = read("machine_type", json!("pc,firmware=/etc/shadow")).unwrap_err();
    assert!(error.contains("\"machine_type\" of driver qemu must be a name"), "{error}");
}

#[test]
fn ports_are_found_by_their_labels() {
    let port = |label: &str, value, to, host_ip: &str| Port {
        label: label.into(),
        value,
        to,
        host_ip: host_ip.into(),
    };
    let ports = [port("http", 20000, 0, "10.0.0.1"), port("ssh", 20001, 2222, "fd00::1")];
    let map = |labels: &[(&str, u16)]| labels.iter().map(|(label, to)| ((*label).to_owned(), *to)).collect();
    let both = map(&[("http", 80), ("ssh", 22)]);
    let address = Some(Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(
        forwards(&both, &ports, false).unwrap(),
        [
            Forward { address, port: 20000, guest: 80 },
            // The user network of the emulator has no addresses of version 6 on the host's side.
            Forward { address: None, port: 20001, guest: 22 }
        ]
    );
    assert_eq!(
        forwards(&both, &ports, true).unwrap(),
        [Forward { address: None, port: 20000, guest: 80 }, Forward { address: None, port: 2222, guest: 22 }]
    );
    let error = forwards(&map(&[("x", 1)]), &ports, false).unwrap_err().to_string();
    assert_eq!(error, "Unknown port label \"x\"");
}
