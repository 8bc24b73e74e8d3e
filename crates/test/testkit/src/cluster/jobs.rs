//! Texts of the jobs and volumes of a cluster with the fault plugin.

use std::path::Path;

/// A fault plugin that runs on every node, with controller and node service in one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlugin {
    /// The plugin's id; its storage system has the same name.
    pub id: String,
    /// Whether the plugin has ControllerPublishVolume.
    pub attach: bool,
    /// Whether the plugin has NodeStageVolume.
    pub stage: bool,
    /// Whether volumes are file systems in images on loop devices instead of directories.
    pub images: bool,
    /// Additional flags that imitate behaviour of other plugins.
    pub habits: Vec<String>,
}

impl FaultPlugin {
    /// Creates a plugin that attaches and stages as given, with the flags `habits`.
    pub fn new(id: &str, attach: bool, stage: bool, habits: &[&str]) -> Self {
        let habits = habits.iter().map(|habit| (*habit).to_owned()).collect();
        Self { id: id.to_owned(), attach, stage, images: false, habits }
    }

    /// Returns whether two nodes of one machine may share a volume. If the plugin refuses to undo a mount
    /// that does not exist, a node waits until the machine has no mount of the volume's directory. The
    /// nodes of a test share the machine, so such a node would wait for the other node.
    pub(crate) fn shares_volumes(&self) -> bool {
        let has = |habit: &str| self.habits.iter().any(|own| own == habit);
        has("--fuse")
            || has("--unknown=not-found")
            || !self.habits.iter().any(|own| own.starts_with("--unknown="))
    }
}

/// A job whose tasks stamp a volume continuously.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamper {
    /// The id of the job.
    pub id: String,
    /// The driver of the tasks.
    pub driver: String,
    /// The id of the volume.
    pub volume: String,
    /// The access mode of the request.
    pub access_mode: String,
    /// The number of allocations.
    pub count: u32,
    /// The version of the job: a different number changes the job.
    pub version: u32,
    /// The setting for a task with a broken mount.
    pub broken_mount: String,
}

/// Returns the text of the plugin's job.
pub fn fault_plugin_job(plugin: &FaultPlugin, san: &Path) -> String {
    let FaultPlugin { id, attach, stage, images, habits } = plugin;
    let flags = [(!attach, "--no-attach"), (!stage, "--no-stage"), (*images, "--loop")];
    let flags = flags.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag);
    let flags = flags.chain(habits.iter().map(String::as_str));
    let flags: String = flags.map(|flag| format!(", \"{flag}\"")).collect();
    format!(
        r#"
job "plugin-{id}" {{
  type = "system"
  group "plugin" {{
    restart {{
      attempts = 100
      interval = "1h"
      delay    = "100ms"
      mode     = "delay"
    }}
    task "plugin" {{
      driver = "raw_exec"
      config {{
        command = "{program}"
        args    = ["serve", "--endpoint=${{CSI_ENDPOINT}}", "--nodeid=${{node.unique.name}}", "--drivername={id}.csi.test", "--san={san}"{flags}]
      }}
      csi_plugin {{
        id   = "{id}"
        type = "monolith"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 32
      }}
    }}
  }}
}}
"#,
        program = crate::fault_plugin().display(),
        san = san.display(),
    )
}

/// Returns the text of a volume specification.
pub fn fault_volume_spec(id: &str, plugin: &str, access_mode: &str) -> String {
    format!(
        r#"
type      = "csi"
id        = "{id}"
name      = "{id}"
plugin_id = "{plugin}"
capability {{
  access_mode     = "{access_mode}"
  attachment_mode = "file-system"
}}
"#
    )
}

/// Returns the text of the writer's job. A writer that cannot write ends and is restarted soon.
pub fn stamper_job(stamper: &Stamper) -> String {
    let Stamper { id, driver, volume, access_mode, count, version, broken_mount: broken } = stamper;
    format!(
        r#"
job "{id}" {{
  group "g" {{
    count = {count}
    restart {{
      attempts = 1000
      interval = "1h"
      delay    = "200ms"
      mode     = "delay"
    }}
    reschedule {{
      delay          = "5s"
      delay_function = "constant"
      unlimited      = true
    }}
    volume "volume" {{
      type            = "csi"
      source          = "{volume}"
      access_mode     = "{access_mode}"
      attachment_mode = "file-system"
      broken_mount    = "{broken}"
    }}
    task "writer" {{
      driver = "{driver}"
      config {{
        command = "{program}"
        args    = ["write", "--dir=${{NOMAD_TASK_DIR}}/volume", "--id=${{NOMAD_ALLOC_ID}}"]
      }}
      env {{
        VERSION = "{version}"
      }}
      volume_mount {{
        volume      = "volume"
        destination = "${{NOMAD_TASK_DIR}}/volume"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 10
        memory = 16
      }}
    }}
  }}
}}
"#,
        program = crate::fault_plugin().display(),
    )
}
