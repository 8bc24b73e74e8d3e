//! The content security policy of the page: no inline scripts and styles, no other hosts, and no scripts from text
//! (Trusted Types).

use http::HeaderValue;

/// The policy of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    directives: Vec<(&'static str, Vec<String>)>,
    header: HeaderValue,
}

/// A source of a directive that cannot be part of the header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{source_text:?} is no source of a content security policy: it must not be empty or contain spaces, `;` or `,`"
)]
pub struct PolicyError {
    source_text: String,
}

/// The directives in the order of the header. Operators can replace the directives of [`SETTABLE`].
const DIRECTIVES: &[(&str, &[&str])] = &[
    ("default-src", &["'none'"]),
    ("connect-src", &["'self'"]),
    ("img-src", &["'self'", "data:"]),
    // Also governs the shared worker: without `worker-src`, browsers use this directive.
    ("script-src", &["'self'"]),
    ("style-src", &["'self'"]),
    ("font-src", &["'self'"]),
    ("base-uri", &["'self'"]),
    ("form-action", &["'none'"]),
    ("frame-ancestors", &["'none'"]),
    ("require-trusted-types-for", &["'script'"]),
    // The policies of the library that renders the page, and of the page for the address of its worker.
    ("trusted-types", &["svelte-trusted-html", "caravan-worker"]),
];

/// The directives that the configuration may set, by their names in the HTTP API.
const SETTABLE: &[(&str, &str)] = &[
    ("ConnectSrc", "connect-src"),
    ("DefaultSrc", "default-src"),
    ("FormAction", "form-action"),
    ("FrameAncestors", "frame-ancestors"),
    ("ImgSrc", "img-src"),
    ("ScriptSrc", "script-src"),
    ("StyleSrc", "style-src"),
];

impl Default for Policy {
    fn default() -> Self {
        let directives = DIRECTIVES.iter().map(|(name, sources)| (*name, owned(sources))).collect();
        Self::build(directives)
    }
}

impl Policy {
    /// Returns the policy with the sources of a directive replaced. An empty list changes nothing.
    ///
    /// # Errors
    /// Fails if a source would end the directive or the header.
    pub fn with(mut self, directive: &str, sources: &[String]) -> Result<Self, PolicyError> {
        if sources.is_empty() {
            return Ok(self);
        }
        let is_bad = |text: &&String| {
            text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic() && !b";,".contains(&b))
        };
        if let Some(bad) = sources.iter().find(is_bad) {
            return Err(PolicyError { source_text: bad.clone() });
        }
        for (name, own) in &mut self.directives {
            if *name == directive {
                *own = sources.to_vec();
            }
        }
        Ok(Self::build(self.directives))
    }

    /// Returns the header.
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// Returns the settable directives with their sources, by their names in the HTTP API.
    pub fn shown(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        SETTABLE.iter().map(|(shown, name)| {
            let found = self.directives.iter().find(|(own, _)| own == name);
            (*shown, found.map(|(_, sources)| sources.as_slice()).unwrap_or_default())
        })
    }

    fn build(directives: Vec<(&'static str, Vec<String>)>) -> Self {
        let parts: Vec<String> =
            directives.iter().map(|(name, sources)| format!("{name} {}", sources.join(" "))).collect();
        // Each source is checked, so the text is a valid header.
        let header = HeaderValue::from_str(&parts.join("; "))
            .unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"));
        Self { directives, header }
    }
}

fn owned(sources: &[&str]) -> Vec<String> {
    sources.iter().map(|source| (*source).to_owned()).collect()
}
