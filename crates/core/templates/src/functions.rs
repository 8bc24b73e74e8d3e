//! The table of the functions that templates can call.

mod codec;
mod lists;
mod lookups;
mod math;
mod print;
mod sprig;
mod strings;
mod times;

use crate::Fault;
use crate::session::{Answer, Session};
use crate::tree;
use caravan_types::words;
use gotmpl::{FuncMap, Value, ValueFunc};
use std::sync::Arc;

/// The name of the function that follows fields. No job file can contain this name.
pub(crate) const GET: &str = "\u{0}get";
/// The name of the function that counts steps.
pub(crate) const COUNT: &str = "\u{0}count";

/// A function of templates.
pub(crate) struct Function {
    name: &'static str,
    least: usize,
    most: usize,
    run: fn(&Session, &[Value]) -> Answer,
}

/// Declares a function with a fixed number of arguments.
const fn f(name: &'static str, arguments: usize, run: fn(&Session, &[Value]) -> Answer) -> Function {
    Function { name, least: arguments, most: arguments, run }
}

/// Declares a function with a range of argument counts.
const fn v(name: &'static str, least: usize, most: usize, run: fn(&Session, &[Value]) -> Answer) -> Function {
    Function { name, least, most, run }
}

/// The maximum of a function with any number of arguments.
const MANY: usize = usize::MAX;

/// Functions of the engine that are used unchanged.
const BUILT_IN: [&str; 12] = ["and", "call", "eq", "ge", "gt", "index", "le", "len", "lt", "ne", "not", "or"];

/// Functions that query Consul or Vault, which this crate does not support.
const CONSUL: [&str; 21] = [
    "byMeta",
    "caLeaf",
    "caRoots",
    "connect",
    "datacenters",
    "explode",
    "exportedServices",
    "key",
    "keyExists",
    "keyExistsGet",
    "keyOrDefault",
    "ls",
    "node",
    "nodes",
    "partitions",
    "peerings",
    "safeLs",
    "safeTree",
    "service",
    "services",
    "tree",
];
const VAULT: [&str; 3] = ["pkiCert", "secret", "secrets"];
/// Functions that act outside the template and are disabled.
const CLOSED: [&str; 4] = ["executeTemplate", "plugin", "sockaddr", "writeToFile"];

fn tables() -> [&'static [Function]; 8] {
    [
        lookups::TABLE,
        strings::TABLE,
        codec::TABLE,
        math::TABLE,
        lists::TABLE,
        times::TABLE,
        print::TABLE,
        sprig::TABLE,
    ]
}

/// Returns the function behind a method of `scratch`.
pub(crate) fn scratch(method: &str) -> Option<&'static str> {
    lookups::SCRATCH.iter().find(|(name, _)| *name == method).map(|(_, function)| *function)
}

/// Returns an error if a function does not exist or is disabled.
pub(crate) fn check(name: &str) -> Result<(), Fault> {
    let ours = || tables().into_iter().flatten().map(|f| f.name);
    if BUILT_IN.contains(&name) || ours().any(|known| known == name) {
        return Ok(());
    }
    Err(Fault::Function(if CONSUL.contains(&name) {
        format!("function \"{name}\" is not available: Consul is not contacted")
    } else if VAULT.contains(&name) {
        format!("function \"{name}\" is not available: Vault is not contacted")
    } else if CLOSED.contains(&name) || name.starts_with("spew_") {
        format!("function \"{name}\" is disabled")
    } else {
        let near = words::suggestion(name, BUILT_IN.into_iter().chain(ours()));
        format!("function \"{name}\" is not defined.{near}")
    }))
}

/// Returns all functions for one render.
pub(crate) fn all(session: &Arc<Session>) -> FuncMap {
    let mut all = FuncMap::new();
    for function in tables().into_iter().flatten() {
        all.insert(function.name.to_owned(), metered(session, function));
    }
    let of = Arc::clone(session);
    let get = move |args: &[Value]| of.get(args).map_err(tree::error);
    all.insert(GET.to_owned(), Arc::new(get));
    let of = Arc::clone(session);
    let count = move |args: &[Value]| {
        let steps = args.first().and_then(Value::as_int).and_then(|n| u64::try_from(n).ok()).unwrap_or(32);
        of.charge(steps).map_err(tree::error)?;
        Ok(Value::String(Arc::from("")))
    };
    all.insert(COUNT.to_owned(), Arc::new(count));
    all
}

/// Wraps a function to count the work of its arguments and its result.
fn metered(session: &Arc<Session>, function: &'static Function) -> ValueFunc {
    let session = Arc::clone(session);
    Arc::new(move |args: &[Value]| {
        let Function { name, least, most, run } = *function;
        let reported = |why: String| tree::error(format!("function \"{name}\": {why}"));
        if args.len() < least || args.len() > most {
            let desired = match (least, most) {
                (least, MANY) => format!("at least {least}"),
                (least, most) if least == most => least.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            return Err(reported(format!("{} arguments are given, {desired} are needed", args.len())));
        }
        args.iter().try_for_each(|value| session.measure(value)).map_err(reported)?;
        let value = run(&session, args).map_err(reported)?;
        session.measure(&value).map_err(reported)?;
        Ok(value)
    })
}
