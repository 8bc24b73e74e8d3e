# Writes a line a second into the volume "data", and the same line to its standard output.

variable "driver" {
  type        = string
  default     = "raw_exec"
  description = "raw_exec, or exec for a task with a file system of its own."
}

job "writer" {
  group "writer" {
    volume "data" {
      type            = "csi"
      source          = "data"
      access_mode     = "single-node-writer"
      attachment_mode = "file-system"
    }

    task "writer" {
      driver = var.driver

      # The same path under every driver: below the task's own directory.
      volume_mount {
        volume      = "data"
        destination = "${NOMAD_TASK_DIR}/data"
      }

      config {
        command = "/bin/sh"
        args = ["-c", <<-EOT
          # In a process namespace of its own the shell is process 1, which ignores signals it does not trap.
          trap 'exit 0' INT TERM
          while true; do
            line="$(date) written by allocation $NOMAD_ALLOC_ID"
            echo "$line" >> "$NOMAD_TASK_DIR/data/log"
            echo "$line"
            sleep 1
          done
        EOT
        ]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
