//! Texts of the jobs and volumes that most tests use.

/// The bundled plugin as a job.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The driver of the plugin's task.
    pub driver: String,
    /// Additional arguments of the plugin.
    pub args: Vec<String>,
}

/// A job that writes into a volume once a second and keeps running.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The id of the job.
    pub id: String,
    /// The driver of the task.
    pub driver: String,
    /// The id of the volume.
    pub volume: String,
    /// The access mode of the request.
    pub access_mode: String,
    /// The first line that the task writes.
    pub word: String,
}

/// Returns the text of the plugin's job.
pub fn plugin_job(plugin: &Plugin) -> String {
    let args: String = plugin.args.iter().map(|a| format!(", \"{a}\"")).collect();
    format!(
        r#"
job "hostpath" {{
  type = "system"
  group "plugin" {{
    task "plugin" {{
      driver = "{driver}"
      config {{
        command = "caravan"
        args    = ["plugin", "hostpath"{args}]
      }}
      csi_plugin {{
        id   = "hostpath"
        type = "monolith"
      }}
      resources {{
        cpu    = 50
        memory = 64
      }}
    }}
  }}
}}
"#,
        driver = plugin.driver
    )
}

/// An external plugin as a job, configured by arguments.
#[derive(Clone, Debug)]
pub struct ForeignPlugin {
    /// The id of the job.
    pub job: String,
    /// The id of the plugin.
    pub id: String,
    /// The plugin's type: `monolith`, `node` or `controller`.
    pub kind: String,
    /// The driver of the task.
    pub driver: String,
    /// The path or name of the program in the configuration of the driver.
    pub command: String,
    /// The arguments after `--endpoint` and `--nodeid`.
    pub args: Vec<String>,
}

/// Returns the text of the job of an external plugin.
pub fn foreign_plugin_job(plugin: &ForeignPlugin) -> String {
    let ForeignPlugin { job, id, kind, driver, command, args } = plugin;
    let args: String = args.iter().map(|a| format!(", \"{a}\"")).collect();
    format!(
        r#"
job "{job}" {{
  type = "system"
  group "plugin" {{
    restart {{
      attempts = 10
      interval = "1h"
      delay    = "100ms"
      mode     = "delay"
    }}
    task "plugin" {{
      driver = "{driver}"
      config {{
        command = "{command}"
        args    = ["--endpoint=${{CSI_ENDPOINT}}", "--nodeid=${{node.unique.name}}"{args}]
      }}
      csi_plugin {{
        id   = "{id}"
        type = "{kind}"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 50
        memory = 64
      }}
    }}
  }}
}}
"#
    )
}

/// Returns the text of a volume specification.
pub fn volume_spec(id: &str, access_mode: &str) -> String {
    format!(
        r#"
type      = "csi"
id        = "{id}"
name      = "{id}"
plugin_id = "hostpath"
capability {{
  access_mode     = "{access_mode}"
  attachment_mode = "file-system"
}}
"#
    )
}

/// Returns the text of the writer's job.
pub fn writer_job(writer: &Writer) -> String {
    let Writer { id, driver, volume, access_mode, word } = writer;
    format!(
        r#"
job "{id}" {{
  group "g" {{
    volume "data" {{
      type            = "csi"
      source          = "{volume}"
      access_mode     = "{access_mode}"
      attachment_mode = "file-system"
    }}
    task "writer" {{
      driver = "{driver}"
      config {{
        command = "/bin/sh"
        args    = ["-c", "cat $NOMAD_TASK_DIR/data/log 2>/dev/null; n=0; while :; do n=$((n+1)); echo {word} $n >> $NOMAD_TASK_DIR/data/log; echo {word} $n; sleep 0.2; done"]
      }}
      volume_mount {{
        volume      = "data"
        destination = "${{NOMAD_TASK_DIR}}/data"
      }}
      kill_timeout = "1s"
      resources {{
        cpu    = 20
        memory = 16
      }}
    }}
  }}
}}
"#
    )
}
