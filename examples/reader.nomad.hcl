# Reads back what the writer wrote, once. While the writer holds the volume this job waits, and
# `caravan job status reader` shows the reason; after `caravan job stop writer` it runs.

variable "driver" {
  type        = string
  default     = "raw_exec"
  description = "raw_exec, or exec for a task with a file system of its own."
}

job "reader" {
  type = "batch"

  group "reader" {
    volume "data" {
      type            = "csi"
      source          = "data"
      access_mode     = "single-node-writer" # of the modes that the volume was made for
      attachment_mode = "file-system"
      read_only       = true
    }

    task "reader" {
      driver = var.driver

      volume_mount {
        volume      = "data"
        destination = "${NOMAD_TASK_DIR}/data"
        read_only   = true
      }

      config {
        command = "/bin/cat"
        args    = ["${NOMAD_TASK_DIR}/data/log"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
