use super::*;
use caravan_types::lookup::{ServiceStub, VariableFound, VariableStub};
use caravan_types::ser::Secrets;
use caravan_types::service::ServiceRegistration;
use proptest::prelude::*;

fn template(text: &str) -> Template {
    Template { text: text.to_owned(), left: String::new(), right: String::new(), error_on_missing_key: false }
}

fn inputs() -> Inputs {
    let variable = |path: &str, items: &[(&str, &str)]| {
        let stub = VariableStub {
            namespace: "default".into(),
            path: path.into(),
            modify_index: 7,
            ..Default::default()
        };
        let items = items.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        (
            Lookup::Variable { namespace: "default".into(), path: path.into() },
            Found::Variable(Some(Box::new(VariableFound { stub, items: Secrets::new(items) }))),
        )
    };
    let service = |id: &str, port: i64, tags: &[&str]| ServiceRegistration {
        id: id.into(),
        service_name: "db".into(),
        address: "10.0.0.1".into(),
        port,
        tags: tags.iter().map(|t| (*t).to_owned()).collect(),
        ..Default::default()
    };
    let found = [
        variable("nomad/jobs/web", &[("host", "db.local"), ("password", "p&ss"), ("port", "5432")]),
        (Lookup::Variable { namespace: "default".into(), path: "none".into() }, Found::Variable(None)),
        (Lookup::Variable { namespace: "default".into(), path: "closed".into() }, Found::Denied("no".into())),
        (
            Lookup::Variables { namespace: "default".into(), prefix: "app".into() },
            Found::Variables(vec![VariableStub { path: "app/a".into(), ..Default::default() }]),
        ),
        (Lookup::Variables { namespace: "default".into(), prefix: "zero".into() }, Found::Variables(vec![])),
        (
            Lookup::Service { namespace: "default".into(), name: "db".into() },
            Found::Service(vec![
                service("a", 1, &["main"]),
                service("b", 2, &["copy"]),
                service("c", 3, &["copy"]),
            ]),
        ),
        (Lookup::Service { namespace: "default".into(), name: "nobody".into() }, Found::Service(vec![])),
        (
            Lookup::Services { namespace: "default".into() },
            Found::Services(vec![ServiceStub { name: "db".into(), tags: vec!["x".into()] }]),
        ),
    ];
    Inputs {
        env: Arc::new(BTreeMap::from([("NOMAD_TASK_NAME".into(), "server".into())])),
        namespace: "default".into(),
        region: "global".into(),
        found: Arc::new(found.into()),
        files: Arc::new(BTreeMap::from([("local/x".into(), "file's text".into())])),
        now: UnixNanos(1_700_000_000_000_000_000),
        seed: 1,
        stop: Arc::default(),
    }
}

fn shown(text: &str) -> String {
    let rendered = render(&template(text), &inputs()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    assert_eq!(rendered.missing, BTreeSet::new(), "{text}");
    rendered.text
}

fn fault(text: &str) -> String {
    render(&template(text), &inputs()).expect_err(text).to_string()
}

fn missing(text: &str) -> Vec<String> {
    let rendered = render(&template(text), &inputs()).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    rendered.missing.iter().map(|need| need.describe("global")).collect()
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(shown(text), *expected, "{text}");
    }
}

#[test]
fn the_language_is_go_s() {
    check(&[
        ("a {{ 1 }} {{- \"b\" -}}  c", "a 1bc"),
        ("{{ range $i, $x := loop 3 }}{{ $i }}{{ end }}", "012"),
        ("{{ define \"x\" }}<{{ . }}>{{ end }}{{ template \"x\" 5 }}", "<5>"),
        ("{{ if and true (eq 1 1) }}y{{ else }}n{{ end }}", "y"),
        ("{{ printf \"%05d|%-4s|%q\" 42 \"a\" \"b\" }}", "00042|a   |\"b\""),
        ("{{ with $x := 3 }}{{ $x }}{{ end }}{{/* no */}}", "3"),
        ("{{ range loop 1 5 }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}", "12"),
        (
            "{{ print 1 2 \"x\" }} {{ len \"abc\" }} {{ slice \"abcdef\" 1 3 }} {{ html \"<\" }}",
            "1 2x 3 bc &lt;",
        ),
    ]);
    let other = Template { left: "[[".into(), right: "]]".into(), ..template("{{ x }} [[ 1 ]]") };
    assert_eq!(render(&other, &inputs()).unwrap().text, "{{ x }} 1");
}

#[test]
fn the_environment_and_files_are_read() {
    check(&[
        ("{{ env \"NOMAD_TASK_NAME\" }}-{{ env \"NONE\" }}", "server-"),
        ("{{ envOrDefault \"NONE\" \"d\" }}", "d"),
        ("{{ mustEnv \"NOMAD_TASK_NAME\" }}", "server"),
        ("{{ file \"local/x\" }}", "file's text"),
        (
            "{{ timestamp }} {{ timestamp \"2006\" }} {{ timestamp \"unix\" }}",
            "2023-11-14T22:13:20Z 2023 1700000000",
        ),
    ]);
    assert!(fault("{{ mustEnv \"NONE\" }}").contains("\"NONE\""));
    assert_eq!(missing("{{ file \"local/y\" }}"), ["file(local/y)"]);
}

#[test]
fn variables_are_maps_that_know_more() {
    check(&[
        ("{{ with nomadVar \"nomad/jobs/web\" }}{{ .host }}:{{ .port }}{{ end }}", "db.local:5432"),
        (
            "{{ range $k, $v := nomadVar \"nomad/jobs/web\" }}{{ $k }}={{ $v }};{{ end }}",
            "host=db.local;password=p&ss;port=5432;",
        ),
        (
            "{{ range (nomadVar \"nomad/jobs/web\").Tuples }}{{ .K }}={{ .V }};{{ end }}",
            "host=db.local;password=p&ss;port=5432;",
        ),
        ("{{ (nomadVar \"nomad/jobs/web\").Keys | join \",\" }}", "host,password,port"),
        (
            "{{ with nomadVar \"nomad/jobs/web\" }}{{ .host.Value }}{{ .none }}{{ .Metadata.ModifyIndex }}{{ end }}",
            "db.local7",
        ),
        ("{{ (nomadVar \"nomad/jobs/web@default.global\").password | toJSON }}", "\"p\\u0026ss\""),
        ("{{ nomadVarExists \"nomad/jobs/web\" }} {{ nomadVarExists \"none\" }}", "true false"),
        (
            "{{ range nomadVarList \"app\" }}{{ .Path }}{{ end }}{{ range nomadVarList \"zero\" }}x{{ end }}",
            "app/a",
        ),
    ]);
    assert_eq!(missing("{{ (nomadVar \"none\").x.y.z }}"), ["nomad.var.block(none@default.global)"]);
    assert_eq!(
        missing("{{ nomadVar \"closed\" }}{{ nomadVar \"unknown@other\" }}"),
        ["nomad.var.block(closed@default.global)", "nomad.var.block(unknown@other.global)"]
    );
    assert_eq!(missing("{{ nomadVarListSafe \"zero\" }}"), ["nomad.var.list(zero@default.global)"]);
    assert!(fault("{{ nomadVar \"a b\" }}").contains("invalid path"));
    assert!(fault("{{ nomadVar \"a@b.elsewhere\" }}").contains("region \"elsewhere\""));
}

#[test]
fn services_are_lists() {
    check(&[
        (
            "{{ range nomadService \"db\" }}{{ .Address }}:{{ .Port }} {{ end }}",
            "10.0.0.1:1 10.0.0.1:2 10.0.0.1:3 ",
        ),
        ("{{ range nomadService \"copy.db@global\" }}{{ .ID }}{{ end }}", "bc"),
        ("{{ len (nomadService 2 \"me\" \"db\") }}", "2"),
        ("{{ range nomadServices }}{{ .Name }}{{ .Tags }}{{ end }}", "db[x]"),
        ("{{ range nomadService \"nobody\" }}x{{ else }}none{{ end }}", "none"),
        ("{{ range $t, $s := nomadService \"db\" | byTag }}{{ $t }}{{ len $s }} {{ end }}", "copy2 main1 "),
        ("{{ range nomadService \"db\" }}{{ if .Tags.Contains \"main\" }}{{ .ID }}{{ end }}{{ end }}", "a"),
        (
            "{{ range nomadService \"db\" }}{{ if .Tags | contains \"copy\" }}{{ .ID }}{{ end }}{{ end }}",
            "bc",
        ),
    ]);
    assert_eq!(missing("{{ nomadService \"other\" }}"), ["nomad.service(other)"]);
}

#[test]
fn functions_do_what_users_know() {
    check(&[
        ("{{ \"a,b\" | split \",\" | join \"-\" }}", "a-b"),
        ("{{ \"x y\" | replaceAll \" \" \"_\" | toUpper }} {{ \"ab cd\" | toTitle }}", "X_Y Ab Cd"),
        (
            "{{ \"--x--\" | trim \"-\" }} {{ \" y \" | trimSpace }} {{ \"pre.x\" | trimPrefix \"pre.\" }}",
            "x y x",
        ),
        (
            "{{ \"foo1\" | regexReplaceAll \"o+(\\\\d)\" \"$1\" }} {{ \"foo\" | regexMatch \"^f\" }}",
            "f1 true",
        ),
        ("{{ \"a\\nb\" | indent 2 }}", "  a\n  b"),
        (
            "{{ 5 | subtract 2 }} {{ 6 | divide 4 }} {{ 7 | modulo 4 }} {{ add 1 2 }} {{ 2 | multiply 3 }} {{ minimum 1 2 }} {{ 1.5 | add 1 }}",
            "3 1 3 3 6 1 2.5",
        ),
        (
            "{{ \"a\" | base64Encode }} {{ \"YQ==\" | base64Decode }} {{ \"YQ\" | base64URLDecode }}",
            "YQ== a a",
        ),
        ("{{ \"a\" | sha256Hex }}", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
        ("{{ \"a\" | md5sum }}", "0cc175b9c0f1b6a831c399e269772661"),
        (
            "{{ hmacSHA256Hex \"what do ya want for nothing?\" \"Jefe\" }}",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        (
            "{{ with `{\"a\":[1,{\"b\":\"<\"}]}` | parseJSON }}{{ index .a 0 }}{{ toJSON . }}{{ toUnescapedJSON . }}{{ end }}",
            "1{\"a\":[1,{\"b\":\"\\u003c\"}]}{\"a\":[1,{\"b\":\"<\"}]}",
        ),
        ("{{ \"a: [1, x]\" | parseYAML | toJSON }}", "{\"a\":[1,\"x\"]}"),
        (
            "{{ parseInt \"12\" | add 1 }} {{ parseBool \"true\" }} {{ parseFloat \"1.5\" }} {{ parseUint \"3\" }}",
            "13 true 1.5 3",
        ),
        (
            "{{ in (sprig_list 1 2) 2 }} {{ containsAll (sprig_list 1) (sprig_list 1 2) }} {{ containsNone (sprig_list 3) (sprig_list 1) }}",
            "true true true",
        ),
        (
            "{{ scratch.Set \"k\" 1 }}{{ scratch.SetX \"k\" 2 }}{{ scratch.Get \"k\" }}{{ if scratch.Key \"k\" }}y{{ end }}{{ scratch.MapSet \"m\" \"a\" \"b\" }}{{ scratch.MapValues \"m\" }}",
            "1y[b]",
        ),
        ("{{ explodeMap (sprig_dict \"a/b\" 1 \"a/c\" 2) | toJSON }}", "{\"a\":{\"b\":1,\"c\":2}}"),
        ("{{ sprig_dict \"a\" 1 \"b\" (sprig_list 1 2) | toYAML }}", "a: 1\nb:\n- 1\n- 2"),
        ("{{ \"k=v,l=w\" | splitToMap \",\" \"=\" | toJSON }}", "{\"k\":\"v\",\"l\":\"w\"}"),
        (
            "{{ sprig_default \"d\" \"\" }} {{ sprig_ternary \"y\" \"n\" true }} {{ \"a\" | sprig_quote }} {{ sprig_trunc 2 \"abc\" }}",
            "d y \"a\" ab",
        ),
        (
            "{{ sprig_snakecase \"fooBar Baz\" }} {{ sprig_untilStep 0 6 2 }} {{ sprig_dig \"a\" \"b\" \"none\" (sprig_dict \"a\" (sprig_dict \"b\" 1)) }}",
            "foo_bar_baz [0 2 4] 1",
        ),
        (
            "{{ (mergeMapWithOverride (sprig_dict \"a\" 1) (sprig_dict \"a\" 2 \"b\" 3)) | toJSON }}",
            "{\"a\":1,\"b\":3}",
        ),
        ("{{ len sprig_uuidv4 }}{{ eq sprig_uuidv4 sprig_uuidv4 }}", "36false"),
        ("{{ .x }}{{ with parseJSON `{}` }}{{ .y }}{{ end }}", "<no value>"),
    ]);
}

#[test]
fn functions_that_are_not_there_are_named() {
    assert_eq!(
        fault("{{ if false }}{{ key \"a\" }}{{ end }}"),
        "function \"key\" is not available: Consul is not contacted"
    );
    assert_eq!(
        fault("{{ with secret \"a\" }}{{ .Data.x }}{{ end }}"),
        "function \"secret\" is not available: Vault is not contacted"
    );
    assert_eq!(fault("{{ plugin \"x\" }}"), "function \"plugin\" is disabled");
    assert_eq!(
        fault("{{ nomadVr \"x\" }}"),
        "function \"nomadVr\" is not defined. Did you mean \"nomadVar\"?"
    );
    assert!(fault("{{ scratch.Nope \"x\" }}").contains("no method \"Nope\""));
    for bad in [
        "{{ end }}",
        "a{{ end }}b",
        "{{ else }}",
        "{{ if true }}x",
        "{{ define \"a\" }}x",
        "{{ if }}",
        "{{",
        "{{ 1 | }}",
    ] {
        assert!(fault(bad).starts_with("the template cannot be parsed: "), "{bad}");
    }
    assert_eq!(shown("{{ if true }}x{{ else }}y{{ end -}}\n"), "x");
    assert!(fault("{{ add 1 }}").contains("function \"add\": 1 arguments are given, 2 are needed"));
    assert!(fault("{{ template \"none\" }}").contains("none"));
}

#[test]
fn what_never_works_is_found_without_rendering() {
    assert_eq!(super::check(&template("{{ mustEnv \"NONE\" }}{{ nomadVar \"x\" }}")), Ok(()));
    assert!(matches!(super::check(&template("{{ end }}")), Err(Fault::Syntax(_))));
    assert!(matches!(super::check(&template("{{ key \"x\" }}")), Err(Fault::Function(_))));
    assert_eq!(super::check(&template(&"x".repeat(limits::TEMPLATE + 1))), Err(Fault::TooLong));
}

#[test]
fn a_missing_key_is_an_error_where_that_is_wished() {
    let strict = |text: &str| render(&Template { error_on_missing_key: true, ..template(text) }, &inputs());
    assert!(
        strict("{{ (nomadVar \"nomad/jobs/web\").nope }}")
            .unwrap_err()
            .to_string()
            .contains("no entry for key \"nope\"")
    );
    assert!(strict("{{ (parseJSON `{}`).a }}").is_err());
    assert_eq!(strict("{{ (nomadVar \"nomad/jobs/web\").port }}").unwrap().text, "5432");
    // Data that is still missing is no error.
    assert!(!strict("{{ (nomadVar \"none\").nope }}").unwrap().missing.is_empty());
}

#[test]
fn what_a_template_does_is_bounded() {
    for text in [
        "{{ $x := \"aaaaaaaaaaaaaaaa\" }}{{ range loop 100 }}{{ $x = print $x $x }}{{ end }}",
        "{{ $x := sprig_list 1 }}{{ range loop 100 }}{{ $x = sprig_list $x $x }}{{ end }}{{ $x }}",
        "{{ $x := sprig_list 1 }}{{ range loop 1000 }}{{ $x = sprig_list $x }}{{ end }}",
        "{{ range 1000000000 }}{{ end }}",
        "{{ range 100000 }}{{ range 100000 }}{{ end }}{{ end }}",
        "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}",
        "{{ define \"a\" }}{{ if . }}{{ template \"a\" (subtract 1 .) }}{{ template \"a\" (subtract 1 .) }}{{ end }}{{ end }}{{ template \"a\" 60 }}",
        "{{ range 1000000 }}0123456789012345678901234567890123456789{{ end }}",
        "{{ printf \"%[1]*[2]d%[1]*[2]d\" 100000000 1 | len }}{{ sprig_repeat 100000000 \"x\" }}",
        "{{ loop 100000000 }}",
        "{{ printf (sprig_repeat 100000 \"%[1]s\") (sprig_repeat 100000 \"x\") }}",
        "{{ regexMatch \"(((a{100}){100}){100})\" \"x\" }}",
        "{{ \"aaaa\" | replaceAll \"\" (sprig_repeat 1000000 \"x\") }}",
    ] {
        assert!(render(&template(text), &inputs()).is_err(), "{text}");
    }
    let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
    assert!(render(&template(&format!("{{{{ {deep} }}}}")), &inputs()).is_err());
    let nested = "{{ if true }}".repeat(10_000);
    assert!(render(&template(&nested), &inputs()).is_err());
    assert_eq!(render(&template(&"x".repeat(limits::TEMPLATE + 1)), &inputs()), Err(Fault::TooLong));
    let stopped = Inputs { stop: Arc::new(AtomicBool::new(true)), ..inputs() };
    assert!(render(&template("x"), &stopped).unwrap_err().to_string().contains("too long"));
}

#[test]
fn nothing_secret_prints() {
    let rendered = render(&template("{{ (nomadVar \"nomad/jobs/web\").password }}"), &inputs()).unwrap();
    assert_eq!(rendered.text, "p&ss");
    assert!(!format!("{rendered:?} {:?}", inputs()).contains("p&ss"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics(parts in prop::collection::vec(prop::sample::select(vec![
        "{{", "}}", " ", "range", "if", "with", "end", "else", "define \"a\"", "template \"a\"", "$x", ":=", "=",
        "nomadVar \"nomad/jobs/web\"", ".host", ".", "|", "(", ")", "loop 3", "add 1", "printf \"%d\"", "toJSON",
        "index", "0", "\"a\"", "scratch.Set \"a\" 1", "scratch.Get", "nil", "text", "{{-", "-}}", "break", "`", ",",
        "sprig_list", "join \",\"", "toYAML", "contains", "env \"X\"", "1.5", "true", "{{end}}", "{{range loop 2}}",
    ]), 0..24)) {
        let text = parts.join(" ");
        let first = render(&template(&text), &inputs());
        // The same inputs give the same result.
        prop_assert_eq!(first, render(&template(&text), &inputs()));
    }

    #[test]
    fn text_without_actions_stays(text in "[^{}]{0,200}") {
        prop_assert_eq!(render(&template(&text), &inputs()).unwrap().text, text);
    }
}
