# A volume that the plugin makes: caravan volume create examples/volume.hcl
type      = "csi"
id        = "data"
name      = "data"
plugin_id = "hostpath"

# Every pair of modes that jobs will request; a job that requests another one is refused.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}
