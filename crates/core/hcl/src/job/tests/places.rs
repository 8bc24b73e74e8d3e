//! Tests the source ranges of errors. Tools of Nomad users rely on these ranges.

use super::super::{ParseOptions, VarInput, parse};
use crate::source::Source;

/// A text, and its first diagnostic: `line,column-column: Summary`.
const CASES: &[(&str, &str)] = &[
    // Syntax.
    ("job \"a\" {\n  type \"x\"\n}\n", "2,11-3,1: Invalid block definition"),
    ("job \"a\" {\n  type\n}\n", "2,3-7: Argument or block definition required"),
    ("job \"a\" {\n  type: \"x\"\n}\n", "2,3-7: Argument or block definition required"),
    ("job \"a\" {\n  type =\n}\n", "2,9-3,1: Invalid expression"),
    ("job \"a\" {\n  5 = 1\n}\n", "2,3-4: Argument or block definition required"),
    (
        "job \"a\" {\n  update { canary = 1, stagger = \"1s\" }\n}\n",
        "2,22-23: Invalid single-argument block definition",
    ),
    ("job \"a\" {\n  update { canary = 1\n  }\n}\n", "2,22-3,1: Invalid single-argument block definition"),
    ("job \"a\" {\n  a { b {} }\n}\n", "2,7-10: Argument definition required"),
    ("job \"a\" { type = \"x\"\n", "1,21-2,1: Invalid single-argument block definition"),
    ("job \"a\" {\n  type = \"x\" priority = 3\n}\n", "2,14-22: Missing newline after argument"),
    ("job \"a\" {\n  type = \"x\",\n  priority = 3\n}\n", "2,13-14: Unexpected comma after argument"),
    ("job \"a\" {\n} x\n", "2,3-4: Missing newline after block definition"),
    ("job \"a\" {\n}\n}\n", "3,1-2: Argument or block definition required"),
    ("job \"a\" = {\n}\n", "1,9-10: Invalid block definition"),
    ("job \"a\"\n{\n}\n", "1,8-2,1: Invalid block definition"),
    ("job \"a${1}\" {\n}\n", "1,7-9: Invalid string literal"),
    ("job \"a\" {\n  name = \"b\n}\n", "2,12-3,1: Invalid multi-line string"),
    ("job \"a\" {\n  name = \"${b\"\n}\n", "2,15-3,1: Invalid multi-line string"),
    ("job \"a\" {\n  name = \"${b c}\"\n}\n", "2,15-16: Extra characters after interpolation expression"),
    ("job \"a\" {\n  name = \"${b:-c}\"\n}\n", "2,14-15: Extra characters after interpolation expression"),
    ("job \"a\" {\n  name = <<EOT\nx\n", "4,1-1: Unterminated template string"),
    ("job \"a\" {\n  name = \"%{ foo }\"\n}\n", "2,14-17: Invalid template control keyword"),
    ("job \"a\" {\n  name = \"%{ for x in [1] }a\"\n}\n", "2,29-30: Unexpected end of template"),
    ("job \"a\" {\n  name = \"a%{ endif }\"\n}\n", "2,12-22: Unexpected endif directive"),
    ("job \"a\" {\n  name = \"\\u12\"\n}\n", "2,11-15: Invalid escape sequence"),
    ("job \"a\" {\n  datacenters = [\"a\" \"b\"]\n}\n", "2,22-23: Missing item separator"),
    ("job \"a\" {\n  datacenters = [\"a\",\n", "3,1-1: Missing expression"),
    ("job \"a\" {\n  datacenters = [\"a\"\n", "2,17-18: Unterminated tuple constructor expression"),
    ("job \"a\" {\n  meta = { a 1 }\n}\n", "2,14-15: Missing key/value separator"),
    ("job \"a\" {\n  meta = { a = 1 b = 2 }\n}\n", "2,18-19: Missing attribute separator"),
    ("job \"a\" {\n  meta = { a = 1\n", "3,1-1: Missing expression"),
    ("job \"a\" {\n  meta = { a =\n 1 }\n}\n", "2,15-3,1: Invalid expression"),
    ("job \"a\" {\n  meta = { a.b = 1 }\n}\n", "2,12-15: Ambiguous attribute key"),
    ("job \"a\" {\n  name = upper(\"a\" \"b\")\n}\n", "2,20-21: Missing argument separator"),
    ("job \"a\" {\n  name = upper([\"a\"]...,)\n}\n", "2,21-24: Missing closing parenthesis"),
    ("job \"a\" {\n  name = upper(\"a\"\n", "2,10-16: Unterminated function call"),
    ("job \"a\" {\n  name = (1 + 2 3)\n}\n", "2,17-18: Unbalanced parentheses"),
    ("job \"a\" {\n  name = local.a[0 1]\n}\n", "2,21-22: Missing close bracket on index"),
    ("job \"a\" {\n  name = local.\n}\n", "2,16-3,1: Invalid attribute name"),
    ("job \"a\" {\n  name = true ? 1\n}\n", "2,18-3,1: Missing false expression in conditional"),
    ("job \"a\" {\n  meta = { for x y : x => x }\n}\n", "2,18-19: Invalid 'for' expression"),
    ("job \"a\" {\n  datacenters = [for x in [1] : x => x]\n}\n", "2,33-34: Invalid 'for' expression"),
    ("job \"a\" {\n  meta = {for x in [1] : x}\n}\n", "2,26-27: Invalid 'for' expression"),
    ("job \"a\" {\n  priority = 1 & 2\n}\n", "2,16-17: Unsupported operator"),
    ("job \"a\" {\n  priority = 5;\n}\n", "2,15-16: Invalid character"),
    ("job \"a\" {\n  name = “x”\n}\n", "2,10-11: Invalid character"),
    ("job \"a\" {\n  priority = <<EOT\nx\nEOT\n}\n", "3,1-4,1: Unsuitable value type"),
    // HCL-JSON.
    ("{\"job\": {\"a\": {\"priority\": 5,}}}", "1,29-30: Trailing comma in object"),
    ("{\"job\": {\"a\": {\"datacenters\": [\"x\",]}}}", "1,35-36: Trailing comma in array"),
    ("{\"job\": {\"a\" {}}}", "1,14-15: Missing property value colon"),
    ("{\"job\": {\"a\": {\"type\": batch}}}", "1,24-29: Invalid JSON keyword"),
    ("{\"job\": {\"a\": {\"count\": 01}}}", "1,25-27: Invalid JSON number"),
    ("{\"job\": {\"a\": {}}", "1,1-2: Unclosed object"),
    ("{\"job\": {\"a\": {\"priority\": \"x\"}}}", "1,28-31: Unsuitable value type"),
    ("{\"job\": {\"a\": {\"name\": \"x${upper(1,2)}\"}}}", "1,36-37: Too many function arguments"),
    ("{\"job\": {\"a\": {\"priorty\": 1}}}", "1,16-25: Extraneous JSON object property"),
    ("{\"job\": {\"a\": {\"group\": {\"g\": 5}}}}", "1,31-32: Incorrect JSON value type"),
    // Structure.
    ("job {\n}\n", "1,5-6: Missing name for job"),
    ("job \"a\" \"b\" {\n}\n", "1,9-12: Extraneous label for job"),
    ("job \"a\" {\n  group {\n  }\n}\n", "2,9-10: Missing name for group"),
    ("job \"a\" {\n  update {\n  }\n  update {\n  }\n}\n", "4,3-9: Duplicate update block"),
    ("job \"a\" {\n  meta {\n  }\n  meta = {}\n}\n", "2,3-7: Duplicate meta block"),
    ("job \"a\" {\n  type {\n  }\n}\n", "2,3-7: Unsupported block type"),
    ("job \"a\" {\n  gruop \"x\" {\n  }\n}\n", "2,3-8: Unsupported block type"),
    ("x = 1\njob \"a\" {\n}\n", "1,1-2: Unsupported argument"),
    ("variable {\n}\njob \"a\" {\n}\n", "1,10-11: Missing name for variable"),
    ("job \"a\" {\n  meta {\n    a {\n    }\n  }\n}\n", "3,5-6: Unexpected \"a\" block"),
    // Types of values.
    ("job \"a\" {\n  priority = \"high\"\n}\n", "2,15-19: Unsuitable value type"),
    ("job \"a\" {\n  priority = 1.5\n}\n", "2,14-17: Unsuitable value type"),
    ("job \"a\" {\n  all_at_once = \"maybe\"\n}\n", "2,18-23: Unsuitable value type"),
    ("job \"a\" {\n  datacenters = \"dc1\"\n}\n", "2,18-21: Unsuitable value type"),
    ("job \"a\" {\n  datacenters = [[\"x\"]]\n}\n", "2,17-18: Unsuitable value type"),
    ("job \"a\" {\n  update {\n    stagger = \"30\"\n  }\n}\n", "3,16-18: Unsuitable value type"),
    ("job \"a\" {\n  update {\n    stagger = null\n  }\n}\n", "3,15-19: Unsuitable value type"),
    ("job \"a\" {\n  priority = \"${[1]}\"\n}\n", "2,14-22: Unsuitable value type"),
    // Evaluation.
    ("job \"a\" {\n  name = uper(\"x\")\n}\n", "2,10-14: Call to unknown function"),
    ("job \"a\" {\n  name = upper()\n}\n", "2,16-17: Not enough function arguments"),
    ("job \"a\" {\n  name = upper(\"a\", \"b\")\n}\n", "2,22-23: Too many function arguments"),
    ("job \"a\" {\n  name = upper(null)\n}\n", "2,16-20: Invalid function argument"),
    ("job \"a\" {\n  name = max(\"x\"...)\n}\n", "2,14-17: Invalid expanding argument value"),
    ("job \"a\" {\n  name = \"a\" + 1\n}\n", "2,10-13: Invalid operand"),
    ("job \"a\" {\n  name = 1 + [2]\n}\n", "2,14-17: Invalid operand"),
    ("job \"a\" {\n  name = !\"x\"\n}\n", "2,11-14: Invalid operand"),
    ("job \"a\" {\n  name = \"a-${[1]}\"\n}\n", "2,15-18: Invalid template interpolation value"),
    ("job \"a\" {\n  name = \"x\" ? 1 : 2\n}\n", "2,10-13: Incorrect condition type"),
    ("job \"a\" {\n  name = true ? [1] : \"x\"\n}\n", "2,17-26: Inconsistent conditional result types"),
    ("job \"a\" {\n  datacenters = [for x in 5 : x]\n}\n", "2,27-28: Iteration over non-iterable value"),
    ("job \"a\" {\n  datacenters = [for x in null : x]\n}\n", "2,27-31: Iteration over null value"),
    ("job \"a\" {\n  datacenters = [for x in [1] : x if 5]\n}\n", "2,38-39: Invalid 'for' condition"),
    ("job \"a\" {\n  meta = { (null) = 1 }\n}\n", "2,21-22: Null value as key"),
    ("job \"a\" {\n  meta = { ([1]) = 1 }\n}\n", "2,12-17: Incorrect key type"),
    ("locals {\n  l = [1]\n}\njob \"a\" {\n  name = local.l[3]\n}\n", "5,17-20: Invalid index"),
    (
        "locals {\n  l = [1]\n  i = 3\n}\njob \"a\" {\n  name = local.l[local.i]\n}\n",
        "6,17-26: Invalid index",
    ),
    ("locals {\n  l = 5\n}\njob \"a\" {\n  name = local.l.x\n}\n", "5,17-19: Unsupported attribute"),
    ("job \"a\" {\n  name = var.x\n}\n", "2,13-15: Unsupported attribute"),
    ("job \"a\" {\n  name = file(\"x\")\n}\n", "2,10-15: Error in function call"),
    // Dynamic blocks.
    (
        "job \"a\" {\n  dynamic \"gruop\" {\n    for_each = []\n    content {\n    }\n  }\n}\n",
        "2,11-18: Unsupported block type",
    ),
    (
        "job \"a\" {\n  dynamic \"group\" {\n    for_each = [1]\n    content {\n    }\n  }\n}\n",
        "2,19-19: Missing required argument",
    ),
    (
        "job \"a\" {\n  dynamic \"update\" {\n    labels = []\n    for_each = [1]\n    content {\n    }\n  }\n}\n",
        "3,5-11: Unsupported argument",
    ),
    (
        "job \"a\" {\n  dynamic \"update\" {\n    content {\n    }\n  }\n}\n",
        "2,20-20: Missing required argument",
    ),
    (
        "job \"a\" {\n  dynamic \"update\" {\n    for_each = null\n    content {\n    }\n  }\n}\n",
        "3,16-20: Invalid dynamic for_each value",
    ),
    (
        "job \"a\" {\n  dynamic \"group\" {\n    for_each = [1]\n    labels = [null]\n    content {\n    }\n  }\n}\n",
        "4,15-19: Invalid dynamic block label",
    ),
    (
        "job \"a\" {\n  dynamic \"group\" {\n    for_each = [1]\n    labels = [\"a\", \"b\"]\n    content {\n    }\n  }\n}\n",
        "4,20-23: Extraneous dynamic block label",
    ),
    (
        "job \"a\" {\n  dynamic \"group\" {\n    for_each = [1]\n    labels = []\n    content {\n    }\n  }\n}\n",
        "4,14-16: Insufficient dynamic block labels",
    ),
    (
        "job \"a\" {\n  dynamic \"update\" {\n    for_each = [1]\n    iterator = \"x y\"\n    content {\n    }\n  }\n}\n",
        "4,17-20: Invalid dynamic iterator name",
    ),
    // Variables and locals.
    ("variable \"x\" {\n  type = strin\n}\njob \"a\" {\n}\n", "2,10-15: Invalid type specification"),
    (
        "variable \"x\" {\n  type = number\n  default = \"a\"\n}\njob \"a\" {\n}\n",
        "3,13-16: Invalid default value for variable",
    ),
    ("variable \"x\" {\n  default = var.y\n}\njob \"a\" {\n}\n", "2,13-16: Variables not allowed"),
    (
        "variable \"x\" {\n  default = upper(\"a\")\n}\njob \"a\" {\n}\n",
        "2,13-18: Function calls not allowed",
    ),
    ("variable \"x y\" {\n}\njob \"a\" {\n}\n", "1,10-15: Invalid variable name"),
    ("variable \"x\" {\n  default = 1\n  foo = 2\n}\njob \"a\" {\n}\n", "3,3-6: Unsupported argument"),
    (
        "variable \"x\" {\n  default = 1\n  validation {\n    condition = true\n    error_message = \"No.\"\n  }\n}\njob \"a\" {\n}\n",
        "4,17-21: Invalid variable validation condition",
    ),
    (
        "variable \"x\" {\n  default = 1\n  validation {\n    condition = var.x > 0\n    error_message = \" \"\n  }\n}\njob \"a\" {\n}\n",
        "5,21-24: Invalid validation error message",
    ),
    (
        "variable \"x\" {\n  default = 1\n  validation {\n    condition = var.x > 1\n    error_message = \"Too small.\"\n  }\n}\njob \"a\" {\n}\n",
        "2,13-14: Invalid value for default variable",
    ),
    (
        "variable \"x\" {\n  default = 1\n  validation {\n    condition = \"${var.x}!\"\n    error_message = \"Too small.\"\n  }\n}\njob \"a\" {\n}\n",
        "4,17-28: Invalid variable validation result",
    ),
    (
        "variable \"x\" {\n  default = 1\n  validation {\n    condition = var.x > 0\n  }\n}\njob \"a\" {\n}\n",
        "3,14-14: Missing required argument",
    ),
    ("locals {\n  x {\n  }\n}\njob \"a\" {\n}\n", "2,3-4: Unexpected \"x\" block"),
    (
        "locals {\n  a = local.b\n  b = local.a\n}\njob \"a\" {\n}\n",
        "2,12-14: Circular reference between local values",
    ),
];

fn first(text: &str, options: &ParseOptions) -> String {
    match parse(&Source::new("f", text), options) {
        Ok(_) => "accepted".to_owned(),
        Err(found) => {
            let line = found.to_string();
            let line = line.lines().next().unwrap_or_default();
            let line = line.strip_prefix("f:").unwrap_or(line);
            line.split("; ").next().unwrap_or_default().to_owned()
        }
    }
}

#[test]
fn errors_are_shown_where_users_of_the_reference_expect_them() {
    let mut wrong = Vec::new();
    for (text, want) in CASES {
        let have = first(text, &ParseOptions { strict: true, ..ParseOptions::default() });
        if have != *want {
            wrong.push(format!("want {want}\nhave {have}\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn values_from_elsewhere_have_places_too() {
    let typed = "variable \"n\" {\n  type = number\n}\njob \"a\" {\n}\n";
    let list = "variable \"n\" {\n  type = list(string)\n}\njob \"a\" {\n}\n";
    let argument = |value: &str| ParseOptions {
        strict: true,
        variables: vec![VarInput { name: "n".into(), value: value.into() }],
        ..ParseOptions::default()
    };
    let file = |text: &str| ParseOptions {
        strict: true,
        var_files: vec![Source::new("x.vars", text)],
        ..ParseOptions::default()
    };
    for (text, options, want) in [
        (typed, argument("x"), "<value for var.n from arguments>:1,1-2: Invalid value for variable"),
        (
            list,
            argument("[upper(\"x\")]"),
            "<value for var.n from arguments>:1,2-7: Function calls not allowed",
        ),
        (
            list,
            argument("[\"x\""),
            "<value for var.n from arguments>:1,1-2: Unterminated tuple constructor expression",
        ),
        (list, argument("{}"), "<value for var.n from arguments>:1,1-3: Invalid value for variable"),
        (typed, file("n = \"x\"\n"), "x.vars:1,5-8: Invalid value for variable"),
        (typed, file("n = \n"), "x.vars:1,5-2,1: Invalid expression"),
        (typed, file("n = local.x\n"), "x.vars:1,5-10: Variables not allowed"),
        (typed, file("n = 1\nm {\n}\n"), "x.vars:2,1-2: Unexpected \"m\" block"),
        (typed, file("m = 1\n"), "x.vars:1,1-2: Undefined variable"),
    ] {
        assert_eq!(first(text, &options), want);
    }
}

/// Checks that a reference to a run time value is no unknown reference.
#[test]
fn names_of_run_time_are_no_errors() {
    for text in ["name = node.class", "name = \"${NOMAD_JOB_NAME}\"", "name = \"${meta.a[0]}\""] {
        assert_eq!(first(&format!("job \"a\" {{\n  {text}\n}}\n"), &ParseOptions::default()), "accepted");
    }
}
