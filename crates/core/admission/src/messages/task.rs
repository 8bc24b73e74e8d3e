//! Messages about tasks and their blocks.

use super::*;

pub(super) const CASES: &[Case] = &[
    // Messages about the task itself.
    ("Task name cannot include slashes", |j| task(j).name = "a/b".into()),
    ("Task name cannot include null characters", |j| task(j).name = "a\0".into()),
    ("Task name cannot be longer than 237 bytes", |j| task(j).name = "x".repeat(238)),
    ("Task name \"alloc\" is reserved", |j| task(j).name = "alloc".into()),
    ("Missing task driver", |j| task(j).driver.clear()),
    ("KillTimeout must be a positive value", |j| task(j).kill_timeout = secs(-1)),
    ("KillTimout (20m0s) longer than the group's ProgressDeadline (10m0s)", |j| {
        group(j).update = Some(update());
        task(j).kill_timeout = secs(1200);
    }),
    ("minimum CPU value is 1; got 0", |j| task(j).resources.cpu = 0),
    ("minimum MemoryMB value is 10; got 9", |j| task(j).resources.memory_mb = 9),
    ("Task can only ask for 'cpu' or 'cores' resource, not both.", |j| task(j).resources.cores = 1),
    ("MemoryMaxMB value (200) should be larger than MemoryMB value (300)", |j| {
        task(j).resources.memory_max_mb = 200;
    }),
    ("minimum MemoryMaxMB value is -1, for no limit; got -2", |j| task(j).resources.memory_max_mb = -2),
    ("secrets (301 MB) must not be larger than memory (300 MB)", |j| task(j).resources.secrets_mb = 301),
    ("Task can't ask for disk resources", |j| task(j).resources.disk_mb = 1),
    ("log storage (500 MB) must be less than requested disk capacity", |j| {
        task(j).log_config.max_files = 50;
        task(j).log_config.max_file_size_mb = 10;
    }),
    ("poststop tasks cannot be sidecars", |j| {
        task(j).lifecycle = Some(Lifecycle { hook: "poststop".into(), sidecar: true });
    }),
    ("Did you mean \"prestart\"?", |j| {
        task(j).lifecycle = Some(Lifecycle { hook: "pre_start".into(), sidecar: true });
    }),
    ("numa affinity \"prefer\" needs cores", |j| numa(j, 0, json!({"Affinity": "prefer"}))),
    ("invalid numa affinity: \"requir\" (known: none, prefer, require). Did you mean \"require\"?", |j| {
        numa(j, 2, json!({"Affinity": "requir"}));
    }),
    ("invalid device name \"a//c\"", |j| {
        task(j).resources.devices =
            vec![RequestedDevice { name: "a//c".into(), count: 1, constraints: vec![], affinities: vec![] }];
    }),
    ("invalid device count", |j| {
        task(j).resources.devices =
            vec![RequestedDevice { name: "gpu".into(), count: 0, constraints: vec![], affinities: vec![] }];
    }),
    ("CSIPluginConfig must have a non-empty PluginID", |j| {
        task(j).csi_plugin_config = Some(CsiPluginConfig::default());
    }),
    ("CSIPluginConfig PluginID \"a/b\" cannot name a directory: it contains a slash", |j| {
        task(j).csi_plugin_config = Some(CsiPluginConfig { id: "a/b".into(), ..Default::default() });
    }),
    ("cannot name a directory: it is longer than 255 bytes", |j| {
        task(j).csi_plugin_config =
            Some(CsiPluginConfig { id: "x".repeat(256).into(), ..Default::default() });
    }),
    // Messages about blocks of tasks.
    ("Must specify a source path or have an embedded template", |j| {
        task(j).templates = template(json!({"EmbeddedTmpl": ""}));
    }),
    ("has a source path or is embedded, not both", |j| {
        task(j).templates = template(json!({"SourcePath": "local/y"}));
    }),
    ("Must specify a destination for the template", |j| {
        task(j).templates = template(json!({"DestPath": ""}))
    }),
    ("template destination escapes allocation directory", |j| {
        task(j).templates = template(json!({"DestPath": "../../x"}));
    }),
    ("template source escapes allocation directory", |j| {
        task(j).templates = template(json!({"EmbeddedTmpl": "", "SourcePath": "a/../../../x"}));
    }),
    ("another template has the destination \"local/x\" too", |j| {
        task(j).templates = [template(json!({})), template(json!({}))].concat();
    }),
    ("Invalid change mode given: \"reload\"", |j| {
        task(j).templates = template(json!({"ChangeMode": "reload"}))
    }),
    ("Must specify signal value when change mode is signal", |j| {
        task(j).templates = template(json!({"ChangeMode": "signal"}));
    }),
    ("must specify change script configuration value", |j| {
        task(j).templates = template(json!({"ChangeMode": "script"}));
    }),
    ("must specify script command value", |j| {
        task(j).templates = template(json!({"ChangeMode": "script", "ChangeScript": {}}));
    }),
    ("cannot use change mode signal with env var templates", |j| {
        task(j).templates =
            template(json!({"ChangeMode": "signal", "ChangeSignal": "SIGHUP", "Envvars": true}));
    }),
    ("Failed to parse \"rw\" as octal permissions", |j| task(j).templates = template(json!({"Perms": "rw"}))),
    ("Must specify positive splay value", |j| task(j).templates = template(json!({"Splay": -1}))),
    ("wait must have both min and max", |j| task(j).templates = template(json!({"Wait": {"Min": 1}}))),
    ("wait min 2ns is greater than max 1ns", |j| {
        task(j).templates = template(json!({"Wait": {"Min": 2, "Max": 1}}));
    }),
    ("source must be specified", |j| task(j).artifacts = carry(json!({}))),
    ("invalid artifact mode \"folder\"", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterMode": "folder"}));
    }),
    ("destination escapes allocation directory", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "RelativeDest": "../../../etc"}));
    }),
    ("wrong length or digits for md5", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterOptions": {"checksum": "md5:12"}}));
    }),
    ("Did you mean \"sha256\"?", |j| {
        task(j).artifacts = carry(json!({"GetterSource": "x", "GetterOptions": {"checksum": "sha265:12"}}));
    }),
    ("Dispatch Payload validation failed: destination escapes", |j| {
        task(j).dispatch_payload = Some(block(json!({"File": "../../../x"})));
    }),
    ("Vault validation failed", |j| task(j).vault = Some(block(json!({"ChangeMode": "reload"})))),
    ("ttl for default identity not yet supported", |j| {
        task(j).identity = Some(block(json!({"TTL": 1})));
    }),
    ("invalid name \"a b\"", |j| task(j).identities = identity(json!({"Name": "a b"}))),
    ("Duplicate identity \"i\" found", |j| {
        task(j).identities = [identity(json!({})), identity(json!({}))].concat();
    }),
    ("can only use change_signal with change_mode = \"signal\"", |j| {
        task(j).identities = identity(json!({"ChangeSignal": "SIGHUP"}));
    }),
    ("an empty string is an invalid audience", |j| task(j).identities = identity(json!({"Audience": [""]}))),
    ("identity filepath escapes allocation directory", |j| {
        task(j).identities = identity(json!({"Filepath": "../../x"}));
    }),
    ("Duplicate secret \"s\" found", |j| {
        let one = json!({"Name": "s", "Provider": "nomad", "Path": "a"});
        task(j).secrets = [carry(one.clone()), carry(one)].concat();
    }),
    ("secret must have a provider", |j| task(j).secrets = carry(json!({"Name": "s", "Path": "a"}))),
    ("secret must have a path", |j| task(j).secrets = carry(json!({"Name": "s", "Provider": "nomad"}))),
    ("secret name must have", |j| {
        task(j).secrets = carry(json!({"Name": "a-b", "Provider": "nomad", "Path": "a"}));
    }),
    ("secrets of provider vault need a vault block", |j| {
        task(j).secrets = carry(json!({"Name": "s", "Provider": "vault", "Path": "a"}));
    }),
    ("invalid name \"a b\": it must have 1 to 128 characters and no blanks", |j| {
        task(j).actions = carry(json!({"Name": "a b", "Command": "x"}));
    }),
    ("command must be set", |j| task(j).actions = carry(json!({"Name": "a"}))),
    ("maximum (1) must not be less than minimum (2)", |j| {
        task(j).scaling_policies = carry(json!({"Type": "vertical_cpu", "Min": 2, "Max": 1}));
    }),
];

fn numa(job: &mut Job, cores: i64, wish: serde_json::Value) {
    let resources = &mut task(job).resources;
    if cores > 0 {
        (resources.cpu, resources.cores) = (0, cores);
    }
    resources.numa = Some(block(wish));
}
