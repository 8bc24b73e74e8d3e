//! Flags that several commands share.

use crate::ctx::Ctx;
use caravan_base::percent::encode;
use caravan_sdk::{Meta, QueryOptions};
use std::env;
use std::io;
use std::process::{Command, Stdio};

/// Flags of lists that are shown page by page.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct PageArgs {
    /// In the list: show only entries that match the filter expression
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// In the list: number of entries on a page
    #[arg(long, value_name = "N")]
    per_page: Option<u32>,
    /// In the list: token of the page, printed at the end of the previous one
    #[arg(long, value_name = "TOKEN")]
    page_token: Option<String>,
}

impl PageArgs {
    /// Adds the page and the filter to a query.
    pub(crate) fn over(&self, mut query: QueryOptions) -> QueryOptions {
        query.filter = self.filter.clone().unwrap_or_default();
        query.per_page = self.per_page.unwrap_or(0);
        query.next_token = self.page_token.clone().unwrap_or_default();
        query
    }
}

/// Prints how to get the next page, if one exists.
pub(crate) fn more(ctx: &Ctx, meta: &Meta) {
    if !meta.next_token.is_empty() {
        ctx.out.line(&format!(
            "\nResults have been paginated. To get the next page run with:\n\n-page-token {}",
            meta.next_token
        ));
    }
}

/// The flag of commands that show an object with a page in the web UI.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct BrowserArgs {
    /// Open the object's page in the browser; without a display, print its address
    #[arg(long)]
    pub(crate) ui: bool,
}

/// Opens a page of the web UI if `-ui` is set. `path` is below `/ui/`. Prints the address in any case: a browser may be
/// on another machine than the command.
pub(crate) fn open(ctx: &Ctx, desired: bool, path: &str) {
    if !desired {
        return;
    }
    let url = format!("{}/ui/{path}", ctx.client.address());
    ctx.out.note(&format!("The web page: {url}"));
    if has_display(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
        && let Err(error) = browse(&url)
    {
        ctx.out.note(&format!("No browser could be started: {error}"));
    }
}

/// Opens the page of a job if `-ui` is set.
pub(crate) fn open_job(ctx: &Ctx, desired: bool, id: &str, namespace: &str) {
    open(ctx, desired, &format!("jobs/{}@{}", encode(id), encode(namespace)));
}

/// Returns whether the session has a display, on which a browser could appear.
fn has_display(is_set: impl Fn(&str) -> bool) -> bool {
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Starts the user's browser and does not wait for its end.
fn browse(url: &str) -> io::Result<()> {
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

#[cfg(test)]
mod tests {
    use super::has_display;

    #[test]
    fn a_session_without_a_display_opens_no_browser() {
        assert!(!has_display(|_| false));
        assert!(has_display(|name| name == "WAYLAND_DISPLAY") && has_display(|name| name == "DISPLAY"));
    }
}
