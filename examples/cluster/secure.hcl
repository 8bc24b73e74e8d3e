# TLS and access control, the same on all servers and clients. docs/guide/production.md makes the certificates: one for
# each role and region, so the servers share a file, and so do the clients.

tls {
  http                   = true
  rpc                    = true
  verify_server_hostname = true
  ca_file                = "/etc/caravan.d/tls/ca.pem"
  cert_file              = "/etc/caravan.d/tls/agent.pem"
  key_file               = "/etc/caravan.d/tls/agent-key.pem"
}

acl {
  enabled = true
}
