//! Flags that several commands share.

use crate::ctx::Ctx;
use caravan_sdk::{Meta, QueryOptions};

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
    /// Open the object's page in the browser; has no effect in this build
    #[arg(long)]
    pub(crate) ui: bool,
}
