use super::*;
use flate2::read::GzDecoder;
use std::io::Read as _;

fn get(path: &str) -> Answer {
    answer(&Settings::default(), &Request { path, if_none_match: "", gzip: false })
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.to_vec()).unwrap()
}

fn an_asset() -> &'static str {
    FILES.keys().find(|path| path.ends_with(".js")).unwrap()
}

#[test]
fn every_address_is_the_page_with_its_own_base() {
    for (path, base) in [
        ("", "./"),
        ("jobs", "./"),
        ("jobs/a%2Fb@default/versions", "../../"),
        ("index.html", "./"),
        ("storage/volumes/csi/data@default", "../../../"),
    ] {
        let answer = get(path);
        assert_eq!((answer.status, answer.content_type), (StatusCode::OK, HTML), "{path}");
        let text = text(&answer);
        let at = text.find(&format!("<base href=\"{base}\" />")).expect(path);
        assert!(at < text.find("<script").unwrap(), "the base must come before what depends on it");
        assert_eq!(answer.headers[CACHE_CONTROL], "no-cache");
    }
}

#[test]
fn files_are_kept_by_clients_and_missing_ones_are_no_page() {
    let path = an_asset();
    let plain = get(path);
    assert_eq!(plain.content_type, "text/javascript; charset=utf-8");
    assert!(plain.headers[CACHE_CONTROL].to_str().unwrap().contains("immutable"));
    let missing = get("assets/index-00000000.js");
    assert_eq!((missing.status, missing.content_type), (StatusCode::NOT_FOUND, TEXT));
    assert!(!missing.headers.contains_key(CACHE_CONTROL));

    let packed = answer(&Settings::default(), &Request { path, if_none_match: "", gzip: true });
    assert_eq!(packed.headers[CONTENT_ENCODING], "gzip");
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
}

#[test]
fn a_known_tag_saves_the_content() {
    for path in ["", "jobs/a", an_asset()] {
        let tag = get(path).headers[ETAG].to_str().unwrap().to_owned();
        let again = answer(
            &Settings::default(),
            &Request { path, if_none_match: &format!("\"x\", {tag}"), gzip: true },
        );
        assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0), "{path}");
        assert!(!again.headers.contains_key(CONTENT_ENCODING));
    }
    assert_ne!(get("").headers[ETAG], get("jobs/a").headers[ETAG]);
}

#[test]
fn the_policy_allows_nothing_unsafe() {
    let header = get("").headers[CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    let expected = "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self'; \
        style-src 'self'; font-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; \
        require-trusted-types-for 'script'; trusted-types svelte-trusted-html caravan-worker";
    assert_eq!(header, expected);
    for word in ["unsafe", "*", "http:", "https:"] {
        assert!(!header.contains(word), "{header}");
    }
}

#[test]
fn an_operator_replaces_directives() {
    let own = |directive: &str, sources: &[&str]| {
        let sources: Vec<String> = sources.iter().map(|text| (*text).to_owned()).collect();
        Policy::default().with(directive, &sources)
    };
    let policy = own("connect-src", &["'self'", "https://example.org"]).unwrap();
    let header = policy.header().to_str().unwrap();
    assert!(header.contains("; connect-src 'self' https://example.org; img-src"), "{header}");
    let settings = Settings { policy, ..Settings::default() };
    assert_eq!(settings.shown()["ContentSecurityPolicy"]["ConnectSrc"][1], "https://example.org");
    assert_eq!(own("img-src", &[]).unwrap(), Policy::default());
    for bad in ["", "a; script-src *", "a,b", "a b", "ä"] {
        assert!(own("img-src", &[bad]).is_err(), "{bad:?}");
    }
}

#[test]
fn a_page_that_is_off_says_so() {
    let settings = Settings { enabled: false, ..Settings::default() };
    for path in ["", "jobs", an_asset()] {
        let answer = answer(&settings, &Request { path, if_none_match: "", gzip: false });
        assert_eq!(answer.status, StatusCode::OK);
        assert!(text(&answer).contains("switched off"));
        assert!(!answer.headers.contains_key(CONTENT_SECURITY_POLICY));
    }
}

/// The first load is small: the page, its style and the scripts that the page itself names.
#[test]
fn the_first_load_stays_within_its_budget() {
    const BUDGET: usize = 120 * 1024;
    let page = files::page(0);
    let first: usize =
        FILES.iter().filter(|(path, _)| page.contains(**path)).map(|(_, file)| file.packed().len()).sum();
    let all: usize = FILES.values().map(|file| file.content.len()).sum();
    assert!(first > 0 && first + page.len() < BUDGET, "{first} bytes");
    assert!(all < 1024 * 1024, "{all} bytes");
}

/// An agent keeps the packed forms of files that a browser has requested, and nothing before that.
#[test]
fn an_agent_keeps_at_most_half_a_mebibyte() {
    let packed: usize = FILES.values().map(|file| file.packed().len()).sum();
    assert!(packed > 0 && packed < 512 * 1024, "{packed} bytes");
}

/// Names without a hash are checked again each time.
#[test]
fn the_script_that_loads_the_page_again_is_never_stale() {
    let page = text(&get(""));
    assert!(page.find("src=\"./boot.js\"") < page.find("type=\"module\""), "{page}");
    let answer = get("boot.js");
    assert_eq!(answer.content_type, "text/javascript; charset=utf-8");
    assert_eq!(answer.headers[CACHE_CONTROL], "no-cache");
}
