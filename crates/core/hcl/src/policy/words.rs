//! The valid policies and capabilities of ACL rules (docs/reference/http-api.md, section 5.8).

use crate::ast::{Block, Body, Expr, ExprKind};
use crate::diag::{Diagnostic, nearest};
use crate::value::Value;

const POLICIES: &[&str] = &["deny", "read", "write"];
const PLUGIN_POLICIES: &[&str] = &["deny", "list", "read", "write"];
const NAMESPACE_POLICIES: &[&str] = &["deny", "read", "scale", "write"];
const VARIABLE_CAPABILITIES: &[&str] = &["deny", "destroy", "list", "read", "write"];
const HOST_VOLUME_CAPABILITIES: &[&str] = &["deny", "mount-readonly", "mount-readwrite"];
const NODE_POOL_CAPABILITIES: &[&str] = &["delete", "deny", "read", "write"];
const OPERATOR_CAPABILITIES: &[&str] = &[
    "deny",
    "keyring-delete",
    "keyring-read",
    "keyring-rotate",
    "license-read",
    "read",
    "snapshot-save",
    "write",
];
const NAMESPACE_CAPABILITIES: &[&str] = &[
    "alloc-exec",
    "alloc-lifecycle",
    "alloc-node-exec",
    "cancel-deployment",
    "csi-list-volume",
    "csi-mount-volume",
    "csi-read-volume",
    "csi-register-plugin",
    "csi-write-volume",
    "delete-service-registration",
    "deny",
    "deregister-job",
    "dispatch-job",
    "evaluate-job",
    "fail-deployment",
    "force-periodic-job",
    "gc-allocation",
    "host-volume-create",
    "host-volume-delete",
    "host-volume-read",
    "host-volume-register",
    "host-volume-write",
    "list-jobs",
    "list-scaling-policies",
    "parse-job",
    "pause-allocation",
    "pause-deployment",
    "plan-job",
    "promote-deployment",
    "purge-job",
    "read-fs",
    "read-job",
    "read-job-scaling",
    "read-logs",
    "read-scaling-policy",
    "register-job",
    "revert-job",
    "scale-job",
    "sentinel-override",
    "set-alloc-health-deployment",
    "stable-job",
    "submit-job",
    "submit-recommendation",
    "tag-job-version",
    "unblock-deployment",
];

/// Reports unknown policies and capabilities. The body has been decoded without errors.
pub(super) fn check(body: &Body, items: &mut Vec<Diagnostic>) {
    for block in &body.blocks {
        let (policies, capabilities): (_, &[&str]) = match block.kind.text.as_str() {
            "namespace" => (NAMESPACE_POLICIES, NAMESPACE_CAPABILITIES),
            "node_pool" => (POLICIES, NODE_POOL_CAPABILITIES),
            "host_volume" => (POLICIES, HOST_VOLUME_CAPABILITIES),
            "operator" => (POLICIES, OPERATOR_CAPABILITIES),
            "plugin" => (PLUGIN_POLICIES, &[]),
            _ => (POLICIES, &[]),
        };
        let what = &block.kind.text;
        for attribute in &block.body.attributes {
            match attribute.name.text.as_str() {
                "policy" => one(&attribute.value, &format!("{what} policy"), policies, items),
                _ => list(&attribute.value, &format!("{what} capability"), capabilities, items),
            }
        }
        for path in block.body.blocks.iter().flat_map(|variables| &variables.body.blocks) {
            paths(path, items);
        }
    }
}

fn paths(path: &Block, items: &mut Vec<Diagnostic>) {
    for attribute in &path.body.attributes {
        list(&attribute.value, "variable capability", VARIABLE_CAPABILITIES, items);
    }
}

fn list(expr: &Expr, what: &str, known: &[&str], items: &mut Vec<Diagnostic>) {
    match &expr.kind {
        ExprKind::Tuple(words) => words.iter().for_each(|word| one(word, what, known, items)),
        _ => one(expr, what, known, items),
    }
}

fn one(expr: &Expr, what: &str, known: &[&str], items: &mut Vec<Diagnostic>) {
    let ExprKind::Literal(Value::Str(word)) = &expr.kind else { return };
    if word.is_empty() && what.ends_with("policy") {
        return;
    }
    if !known.contains(&&**word) {
        let mut error = Diagnostic::error(
            "E0512",
            expr.span,
            format!("Invalid {what}"),
            format!("{word:?} is no {what}; it is one of {}.", known.join(", ")),
        );
        if let Some(near) = nearest(word, known.iter().copied()) {
            error = error.hint(format!("Did you mean {near:?}?"));
        }
        items.push(error);
    }
}
