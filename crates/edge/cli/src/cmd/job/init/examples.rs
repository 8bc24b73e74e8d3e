//! The example jobs that `job init` writes.

/// A web server that registers a service.
pub(super) const SERVICE: &str = r#"# A job is what the servers keep running: groups of tasks, each group placed as a whole on one node.
# `caravan job plan` shows what would change, `caravan job run` makes it so. All words of the language are
# in docs/job-language.md.
job "example" {
  # service: runs until it is stopped. batch: runs to its end. system: one on each node.
  type = "service"

  # Where it may run; globs are allowed.
  datacenters = ["*"]

  # Nodes that do not match are not considered. This can stand in groups and tasks too.
  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  # How a new version replaces the old one.
  update {
    max_parallel     = 1
    min_healthy_time = "5s"
    healthy_deadline = "3m"
    auto_revert      = true
  }

  group "web" {
    # How many allocations of this group there are.
    count = 1

    network {
      # A free port of the node. Tasks read it from NOMAD_PORT_http.
      port "http" {}
    }

    # The directory that the tasks of an allocation share, in MB.
    ephemeral_disk {
      size = 50
    }

    # What happens on the node when a task fails: so many tries in the interval, then the allocation has failed.
    restart {
      attempts = 2
      interval = "30m"
      delay    = "15s"
      mode     = "fail"
    }

    # A volume that the tasks of the group can mount. `caravan job init -csi` shows how.
    # volume "data" {
    #   type            = "csi"
    #   source          = "data"
    #   access_mode     = "single-node-writer"
    #   attachment_mode = "file-system"
    # }

    task "server" {
      # How the task runs. exec isolates it, raw_exec does not.
      driver = "exec"

      # For the driver.
      config {
        command = "/usr/bin/python3"
        args    = ["-m", "http.server", "${NOMAD_PORT_http}", "--directory", "${NOMAD_TASK_DIR}"]
      }

      # For the task.
      env {
        GREETING = "hello"
      }

      # What it may use: MHz and MB.
      resources {
        cpu    = 100
        memory = 64
      }

      # Between the signal that asks it to end and the one that makes it end.
      kill_timeout = "5s"

      # Files kept of its output, and the size of each in MB.
      logs {
        max_files     = 3
        max_file_size = 5
      }
    }
  }
}
"#;

/// A task that stores its files in a volume.
pub(super) const CSI: &str = r#"# A task with a volume of the bundled CSI plugin. The plugin is a job of its own: see
# examples/hostpath-plugin.nomad.hcl. The volume is made once, before this job runs:
#
#   caravan volume init && caravan volume create volume.hcl
job "example" {
  type        = "service"
  datacenters = ["*"]

  group "db" {
    count = 1

    # The volume as this group asks for it.
    volume "data" {
      type   = "csi"
      source = "data"

      # One node may write. multi-node-multi-writer and others: what the plugin can do.
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"

      # With count above 1: a volume for each allocation, data[0], data[1] and so on.
      # per_alloc = true

      mount_options {
        mount_flags = ["noatime"]
      }
    }

    task "writer" {
      driver = "exec"

      config {
        command = "/bin/sh"
        args    = ["-c", "while true; do date >> /data/log; sleep 5; done"]
      }

      # Where the task sees it.
      volume_mount {
        volume      = "data"
        destination = "/data"
      }

      resources {
        cpu    = 50
        memory = 32
      }
    }
  }
}
"#;

/// Two services that communicate over a service mesh.
pub(super) const CONNECT: &str = r#"# Two services that talk through proxies of a service mesh. It needs Consul and CNI plugins on the nodes.
job "example" {
  type        = "service"
  datacenters = ["*"]

  group "api" {
    network {
      mode = "bridge"
    }

    service {
      name = "api"
      port = "9001"

      # The proxy beside the tasks of this group.
      connect {
        sidecar_service {}
      }
    }

    task "api" {
      driver = "docker"

      config {
        image = "example/api:1"
      }
    }
  }

  group "dashboard" {
    network {
      mode = "bridge"

      port "http" {
        static = 9002
        to     = 9002
      }
    }

    service {
      name = "dashboard"
      port = "http"

      connect {
        sidecar_service {
          proxy {
            # The other service appears at this port of the group.
            upstreams {
              destination_name = "api"
              local_bind_port  = 8080
            }
          }
        }
      }
    }

    task "dashboard" {
      driver = "docker"

      env {
        API_URL = "http://${NOMAD_UPSTREAM_ADDR_api}"
      }

      config {
        image = "example/dashboard:1"
      }
    }
  }
}
"#;
