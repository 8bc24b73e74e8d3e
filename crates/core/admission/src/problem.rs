//! Problems as data, with the nesting of the response's text.

use caravan_api::{Fault, JobPath, JobProblem, Misfits, Severity};

/// Declares the codes with their names in responses.
macro_rules! codes {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// The kind of a problem. The names are part of the API: a code may be added, never renamed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ProblemCode { $($(#[$meta])* $name,)* }

        impl ProblemCode {
            /// All codes, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the name of the code in responses.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// A required setting that is absent or empty.
    Missing = "missing",
    /// Two entries with a value that only one entry may have.
    Duplicate = "duplicate",
    /// A word that is not among the words of the setting.
    UnknownWord = "unknown_word",
    /// A name with characters or of a length that names cannot have.
    InvalidName = "invalid_name",
    /// A value that cannot be read.
    InvalidValue = "invalid_value",
    /// A number or duration below the minimum.
    BelowMinimum = "below_minimum",
    /// A number, duration or text above the maximum.
    AboveMaximum = "above_maximum",
    /// Two settings contradict each other.
    Conflict = "conflict",
    /// A name of an object that the job does not define.
    UndefinedReference = "undefined_reference",
    /// A setting that jobs of this type cannot have.
    NotForJobType = "not_for_job_type",
    /// A setting that is not permitted in this block.
    NotAllowedHere = "not_allowed_here",
    /// A setting that this release does not support.
    Unsupported = "unsupported",
    /// A path that leads out of the directory of the allocation.
    PathEscapes = "path_escapes",
    /// A regular expression that does not compile.
    InvalidRegexp = "invalid_regexp",
    /// A version constraint that cannot be read.
    InvalidVersion = "invalid_version",
    /// A cron expression that cannot be read.
    InvalidCron = "invalid_cron",
    /// A time zone that does not exist.
    InvalidTimeZone = "invalid_time_zone",
    /// More users of a volume than its access mode allows.
    TooManyUsers = "too_many_users",
    /// A registered volume that lacks the requested mode.
    VolumeLacksMode = "volume_lacks_mode",
    /// A namespace or node pool that does not exist.
    Nonexistent = "nonexistent",
    /// A setting that the namespace of the job does not allow.
    NotAllowedInNamespace = "not_allowed_in_namespace",
    /// A setting that cannot change once the job is registered, or that only the servers set.
    Immutable = "immutable",
    /// A setting that is kept for older job files only.
    Deprecated = "deprecated",
    /// A setting that has no effect.
    NoEffect = "no_effect",
    /// A setting that is weaker than recommended.
    Insecure = "insecure",
    /// An update that stops all allocations together.
    Disruptive = "disruptive",
    /// Services that vanish from the catalog while callers still use them.
    AbruptStop = "abrupt_stop",
    /// A template that fails when it is rendered.
    InvalidTemplate = "invalid_template",
    /// A part of the response that the caller may not see.
    Hidden = "hidden",
}

/// A single problem of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place in the canonicalised job. [`JobPath::written_in`] returns the place in the submitted job.
    pub path: JobPath,
    /// The kind of the problem.
    pub code: ProblemCode,
    /// The sentence, without the titles of the lists that contain it.
    pub text: String,
}

impl Problem {
    /// Returns a problem of the setting at a path.
    pub fn new(code: ProblemCode, path: JobPath, text: impl Into<String>) -> Self {
        Self { path, code, text: text.into() }
    }

    /// Returns the problem in the form of responses.
    #[must_use]
    pub fn to_api(&self, severity: Severity) -> JobProblem {
        JobProblem {
            path: self.path.clone(),
            code: self.code.as_str().to_owned(),
            text: self.text.clone(),
            severity,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// A problem, and the words before its text.
    One { lead: String, problem: Problem },
    /// A list under a title.
    List { title: String, items: Vec<Item>, ends_bare: bool },
}

impl Item {
    fn text(&self) -> String {
        match self {
            Self::One { lead, problem } => format!("{lead}{}", problem.text),
            Self::List { title, items, ends_bare } => {
                let list = super::joined(&items.iter().map(Self::text).collect::<Vec<_>>());
                format!("{title}{}", if *ends_bare { list.trim_end() } else { &list })
            }
        }
    }

    fn collect<'i>(&'i self, into: &mut Vec<&'i Problem>) {
        match self {
            Self::One { problem, .. } => into.push(problem),
            Self::List { items, .. } => items.iter().for_each(|item| item.collect(into)),
        }
    }
}

/// Problems of one severity, in the order of their text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Item>);

impl Problems {
    /// Whether the list has no problem.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the single problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        let mut all = Vec::new();
        self.0.iter().for_each(|item| item.collect(&mut all));
        all.into_iter()
    }

    /// Returns the texts of the outermost lists and problems, as responses list them.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(Item::text).collect()
    }

    /// Returns all problems in the form of responses.
    #[must_use]
    pub fn to_api(&self, severity: Severity) -> Vec<JobProblem> {
        self.iter().map(|problem| problem.to_api(severity)).collect()
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        self.push_after("", problem);
    }

    /// Adds a problem with `lead` before it in the text of a response.
    pub fn push_after(&mut self, lead: impl Into<String>, problem: Problem) {
        self.0.push(Item::One { lead: lead.into(), problem });
    }

    /// Removes the problem of a setting that appears to be missing, outside inner lists.
    fn remove_missing(&mut self, at: &JobPath) {
        self.0.retain(|item| {
            !matches!(item, Item::One { problem, .. }
                if problem.code == ProblemCode::Missing && problem.path == *at)
        });
    }

    /// Adds all problems of another list.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds another list under a title, unless it is empty.
    pub(crate) fn nest(&mut self, title: impl Into<String>, inner: Self) {
        self.nest_as(title.into(), inner, false);
    }

    /// Adds another list under a title, without the blank lines after it.
    pub(crate) fn nest_bare(&mut self, title: impl Into<String>, inner: Self) {
        self.nest_as(title.into(), inner, true);
    }

    fn nest_as(&mut self, title: String, inner: Self, ends_bare: bool) {
        if !inner.is_empty() {
            self.0.push(Item::List { title, items: inner.0, ends_bare });
        }
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        let mut problems = Self::default();
        problems.push(problem);
        problems
    }
}

/// Problems of one block, while its rules are applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    pub(crate) path: JobPath,
    pub(crate) found: Problems,
}

impl Findings {
    pub(crate) fn at(path: JobPath) -> Self {
        Self { path, found: Problems::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a problem of a field of the block. An empty `field` stands for the block itself.
    pub(crate) fn add(&mut self, code: ProblemCode, field: &'static str, text: impl Into<String>) {
        self.add_at(code, self.path.clone().field(field), text);
    }

    pub(crate) fn add_at(&mut self, code: ProblemCode, path: JobPath, text: impl Into<String>) {
        self.found.push(Problem::new(code, path, text));
    }

    /// Adds conversion errors, which contain their own paths. A setting that did not convert appears to be missing to
    /// the rules of its block. The conversion error replaces that problem.
    pub(crate) fn misfits(&mut self, misfits: Misfits) {
        for misfit in misfits.0 {
            self.found.remove_missing(&misfit.at);
            let code = match misfit.fault {
                Fault::Word => ProblemCode::UnknownWord,
                Fault::Negative => ProblemCode::BelowMinimum,
                Fault::TooLarge => ProblemCode::AboveMaximum,
            };
            self.add_at(code, misfit.at, misfit.message);
        }
    }

    /// Adds the problems of an inner block as a list under a title, unless the list is empty.
    pub(crate) fn nest(&mut self, title: impl Into<String>, inner: Self) {
        self.found.nest(title, inner.found);
    }

    /// Returns empty findings for a block below this one.
    pub(crate) fn below(&self, field: &'static str) -> Self {
        Self::at(self.path.clone().field(field))
    }

    /// Returns empty findings for an element of a list of this block.
    pub(crate) fn element(&self, field: &'static str, index: usize) -> Self {
        Self::at(self.path.clone().field(field).index(index))
    }
}
