use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const PART_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a server that chooses each response by the path. Returns its address and the requests.
async fn server(answer: fn(&str) -> String) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sent, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut head, mut piece) = (Vec::new(), [0; 512]);
            // A TLS client hello (first byte 0x16) gets a response in plain HTTP.
            while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.first() != Some(&0x16) {
                match stream.read(&mut piece).await {
                    Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
                    _ => break,
                }
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            sent.send(head).unwrap();
            stream.write_all(answer(&path).as_bytes()).await.unwrap();
        }
    });
    (address, requests)
}

fn site(path: &str) -> String {
    let found = |text: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    let to = |to: &str| format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    match path {
        "/a/file?v=1" => found("content"),
        "/a/old" => to("file?v=1"),
        "/old" => to("/a/old"),
        "/nowhere" => "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        "/circle" => to("/circle"),
        "/ftp" => to("ftp://h/x"),
        "/half" => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789".to_owned(),
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
    }
}

fn policy(max_redirects: usize) -> Policy {
    Policy { tls: ClientSettings::default(), max_redirects, timeout: PART_TIMEOUT }
}

async fn get(url: &str, max_redirects: usize) -> Result<Reply, FetchError> {
    fetch(&url.parse().unwrap(), &Message::default(), &policy(max_redirects)).await
}

#[tokio::test]
async fn redirects_are_followed() {
    let (at, _requests) = server(site).await;
    for path in ["/a/file?v=1", "/a/old", "/old"] {
        let reply = get(&format!("http://{at}{path}"), 2).await.unwrap();
        assert_eq!(reply.body(7).await.unwrap(), "content", "{path}");
    }
    let failed = |path: &'static str, max| {
        let url = format!("http://{at}{path}");
        async move { get(&url, max).await.unwrap_err() }
    };
    assert!(matches!(failed("/circle", 5).await, FetchError::TooManyRedirects { max: 5 }));
    assert!(matches!(failed("/old", 1).await, FetchError::TooManyRedirects { max: 1 }));
    assert!(matches!(failed("/nowhere", 1).await, FetchError::NoTarget { .. }));
    assert!(matches!(failed("/ftp", 1).await, FetchError::Scheme { .. }));
    assert_eq!(get(&format!("http://{at}/old"), 0).await.unwrap().status(), 302);
    assert_eq!(get(&format!("http://{at}/none"), 1).await.unwrap().status(), 404);
}

#[tokio::test]
async fn unreachable_servers_are_reported_with_their_cause() {
    let (at, _requests) = server(site).await;
    let failed = get("https://127.0.0.1:1/", 0).await.unwrap_err();
    assert!(matches!(failed, FetchError::Connect { .. }), "{failed:?}");
    let failed = get(&format!("https://{at}/"), 0).await.unwrap_err();
    assert!(matches!(failed, FetchError::Handshake { .. }), "{failed:?}");
    let failed = get("http://no.such.host.invalid/", 0).await.unwrap_err();
    assert!(matches!(failed, FetchError::Lookup { .. }), "{failed:?}");
    assert!(matches!(get("ftp://h/", 0).await.unwrap_err(), FetchError::Scheme { .. }));
    assert!(matches!(get("/path", 0).await.unwrap_err(), FetchError::NoHost));
}

#[tokio::test]
async fn bodies_have_limits() {
    let (at, _requests) = server(site).await;
    let reply = get(&format!("http://{at}/a/file?v=1"), 0).await.unwrap();
    assert!(matches!(reply.body(6).await, Err(FetchError::TooLarge { limit: 6 })));
    // The server never sends the rest, and the client does not wait for it.
    let reply = get(&format!("http://{at}/half"), 0).await.unwrap();
    assert_eq!(reply.start(4).await.unwrap(), "0123");
}

#[tokio::test]
async fn headers_stay_with_their_host() {
    // The second server has another port, which is another host.
    let (second, mut seen_by_second) = server(site).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first = listener.local_addr().unwrap();
    let redirects = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        let answer =
            format!("HTTP/1.1 302 Found\r\nLocation: http://{second}/a/old\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    };
    let mut message = Message::default();
    message.headers.insert("x-token", HeaderValue::from_static("secret"));
    let url: Uri = format!("http://{first}/").parse().unwrap();
    let policy = policy(3);
    let (head, reply) = tokio::join!(redirects, fetch(&url, &message, &policy));
    assert_eq!(reply.unwrap().status(), 200);
    assert!(head.contains("x-token: secret") && head.contains(&format!("host: {first}")), "{head}");
    assert!(!seen_by_second.recv().await.unwrap().contains("secret"));
}

#[tokio::test]
async fn bodies_are_not_redirected() {
    let (at, mut requests) = server(site).await;
    let message = Message { method: Method::POST, body: Bytes::from_static(b"a=b"), ..Message::default() };
    let url: Uri = format!("http://{at}/old").parse().unwrap();
    assert_eq!(fetch(&url, &message, &policy(3)).await.unwrap().status(), 302);
    assert!(requests.recv().await.unwrap().starts_with("POST /old "));
}

#[tokio::test]
async fn a_silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let short = Policy { timeout: Duration::from_millis(50), ..policy(0) };
    let failed = fetch(&url, &Message::default(), &short).await.unwrap_err();
    assert!(matches!(failed, FetchError::Silent { .. }), "{failed:?}");
}

#[test]
fn the_login_of_a_url_is_a_header() {
    let url: Uri = "http://u:p@h/a".parse().unwrap();
    let made = request(&url, "u:p@h", &Message::default(), true).unwrap();
    assert_eq!(
        (&made.headers()[HOST], &made.headers()[AUTHORIZATION]),
        (&"h".parse().unwrap(), &"Basic dTpw".parse().unwrap())
    );
    let mut message = Message::default();
    message.headers.insert(HOST, HeaderValue::from_static("other"));
    assert_eq!(request(&url, "u:p@h", &message, true).unwrap().headers()[HOST], "other");
    assert_eq!(request(&url, "u:p@h", &message, false).unwrap().headers()[HOST], "h");
}
