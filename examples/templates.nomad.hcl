# A task whose configuration comes from a variable, and which is notified of changes. Without the variable the task
# waits, and `caravan alloc status` shows the reason.

variable "driver" {
  type        = string
  default     = "raw_exec"
  description = "raw_exec, or exec for a task with a file system of its own."
}

job "templates" {
  group "templates" {
    task "greeter" {
      driver = var.driver

      # A file, read again by the task when it gets the signal.
      template {
        data          = <<-EOT
          {{- with nomadVar "nomad/jobs/templates" }}
          {{ .greeting }} from {{ env "NOMAD_TASK_NAME" }}
          {{- end }}
        EOT
        destination   = "local/greeting"
        change_mode   = "signal"
        change_signal = "SIGHUP"
        splay         = "1s"
      }

      # Variables of the environment: a change of these restarts the task.
      template {
        data        = <<-EOT
          {{ range nomadServices -}}
          SERVICE_{{ .Name | toUpper | replaceAll "-" "_" }}={{ .Tags | join "," }}
          {{ end -}}
        EOT
        destination = "secrets/services.env"
        env         = true
      }

      config {
        command = "/bin/sh"
        args    = ["-c", "trap 'cat $NOMAD_TASK_DIR/greeting' HUP; cat $NOMAD_TASK_DIR/greeting; while true; do sleep 1; done"]
      }

      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
