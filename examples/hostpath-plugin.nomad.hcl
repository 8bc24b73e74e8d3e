# The bundled CSI plugin, one instance on every node. Any other CSI plugin runs the same way: its own
# command, its own arguments.

variable "driver" {
  type        = string
  default     = "raw_exec"
  description = "raw_exec, or exec for a task with a file system of its own."
}

variable "args" {
  type        = list(string)
  default     = []
  description = "Further flags of the plugin, see `caravan plugin hostpath --help`."
}

job "hostpath" {
  type = "system"

  group "plugin" {
    task "plugin" {
      driver = var.driver

      config {
        command = "caravan" # the agent's own program is on the search path of its tasks
        args    = concat(["plugin", "hostpath"], var.args)
      }

      csi_plugin {
        id   = "hostpath" # what volumes name as plugin_id
        type = "monolith" # controller and node service in one process
      }

      resources {
        cpu    = 50
        memory = 64
      }
    }
  }
}
