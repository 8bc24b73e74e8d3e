//! Defaults of the service mesh blocks. Empty lists and maps become null here, unlike elsewhere.

use super::{Nanos, fill_logs, fill_resources, or};
use crate::{Connect, Expose, Gateway, GatewayTls, Proxy, SidecarService, SidecarTask, VolumeMount};
use std::collections::BTreeMap;

pub(super) fn fill_connect(connect: &mut Connect) {
    if let Some(service) = &mut connect.sidecar_service {
        fill_sidecar_service(service);
    }
    if let Some(task) = &mut connect.sidecar_task {
        fill_sidecar_task(task);
    }
    if let Some(gateway) = &mut connect.gateway {
        fill_gateway(gateway);
    }
}

pub(super) fn fill_volume_mount(mount: &mut VolumeMount) {
    mount.propagation_mode.get_or_insert_with(|| "private".to_owned());
    mount.read_only.get_or_insert(false);
    mount.selinux_label.get_or_insert_default();
}

/// Lists and maps that may be empty.
trait Emptiable {
    fn nothing(&self) -> bool;
}
impl<T> Emptiable for Vec<T> {
    fn nothing(&self) -> bool {
        self.is_empty()
    }
}
impl<T> Emptiable for BTreeMap<String, T> {
    fn nothing(&self) -> bool {
        self.is_empty()
    }
}
impl Emptiable for serde_json::Map<String, serde_json::Value> {
    fn nothing(&self) -> bool {
        self.is_empty()
    }
}

fn drop_empty<T: Emptiable>(field: &mut Option<T>) {
    if field.as_ref().is_some_and(Emptiable::nothing) {
        *field = None;
    }
}

fn fill_sidecar_service(service: &mut SidecarService) {
    drop_empty(&mut service.tags);
    drop_empty(&mut service.meta);
    if let Some(proxy) = &mut service.proxy {
        fill_proxy(proxy);
    }
}

fn fill_proxy(proxy: &mut Proxy) {
    drop_empty(&mut proxy.upstreams);
    drop_empty(&mut proxy.config);
    for upstream in proxy.upstreams.iter_mut().flatten() {
        drop_empty(&mut upstream.config);
    }
    for expose in [&mut proxy.expose, &mut proxy.expose_config].into_iter().flatten() {
        fill_expose(expose);
    }
    if let Some(transparent) = &mut proxy.transparent_proxy {
        drop_empty(&mut transparent.exclude_inbound_ports);
        drop_empty(&mut transparent.exclude_outbound_ports);
        drop_empty(&mut transparent.exclude_outbound_cidrs);
        drop_empty(&mut transparent.exclude_uids);
    }
}

fn fill_expose(expose: &mut Expose) {
    drop_empty(&mut expose.paths);
    drop_empty(&mut expose.path);
}

fn fill_sidecar_task(task: &mut SidecarTask) {
    drop_empty(&mut task.config);
    drop_empty(&mut task.env);
    drop_empty(&mut task.meta);
    fill_resources(task.resources.get_or_insert_default());
    fill_logs(task.log_config.get_or_insert_default());
    task.kill_timeout.get_or_insert(Nanos::from_secs(5));
    task.shutdown_delay.get_or_insert(Nanos(0));
    for mount in task.volume_mounts.iter_mut().flatten() {
        fill_volume_mount(mount);
    }
}

fn fill_gateway(gateway: &mut Gateway) {
    if let Some(proxy) = &mut gateway.proxy {
        proxy.connect_timeout.get_or_insert(Nanos::from_secs(5));
        drop_empty(&mut proxy.envoy_gateway_bind_addresses);
        drop_empty(&mut proxy.config);
    }
    if let Some(ingress) = &mut gateway.ingress {
        fill_tls(ingress.tls.as_mut());
        drop_empty(&mut ingress.listeners);
        for listener in ingress.listeners.iter_mut().flatten() {
            or(&mut listener.protocol, "tcp");
            drop_empty(&mut listener.services);
            for service in listener.services.iter_mut().flatten() {
                drop_empty(&mut service.hosts);
                fill_tls(service.tls.as_mut());
                for headers in
                    [&mut service.request_headers, &mut service.response_headers].into_iter().flatten()
                {
                    drop_empty(&mut headers.add);
                    drop_empty(&mut headers.set);
                    drop_empty(&mut headers.remove);
                }
            }
        }
    }
    if let Some(terminating) = &mut gateway.terminating {
        drop_empty(&mut terminating.services);
    }
}

fn fill_tls(tls: Option<&mut GatewayTls>) {
    if let Some(tls) = tls {
        drop_empty(&mut tls.cipher_suites);
    }
}
