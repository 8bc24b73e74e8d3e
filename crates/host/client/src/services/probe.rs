//! One run of a check: an HTTP request, a connection, a program in the task, or a request to a gRPC server.

use super::desired::DesiredCheck;
use crate::runner::{AllocState, Planner};
use bytes::Bytes;
use caravan_drivers::TaskId;
use caravan_tls::{Checked, ClientSettings, Connector, Stream};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// The most bytes that are read of an error response.
const MAX_BODY: usize = 3 * 1024;

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Whether the check passed.
    pub(crate) success: bool,
    /// The HTTP status of the response; 0 without one.
    pub(crate) status_code: u16,
    /// The output for users.
    pub(crate) output: String,
}

impl Seen {
    fn good(output: &str) -> Self {
        Self { success: true, status_code: 0, output: output.to_owned() }
    }
    pub(crate) fn failed(why: impl std::fmt::Display) -> Self {
        Self { success: false, status_code: 0, output: format!("nomad: {why}") }
    }
}

/// Runs the check once. The caller limits the time.
pub(crate) async fn look(alloc: &AllocState, planner: &Planner, check: &DesiredCheck) -> Seen {
    if check.spec.kind == "script" {
        return script(alloc, planner, check).await;
    }
    let place = match &check.endpoint {
        Ok(place) if place.port > 0 => place,
        Ok(_) => return Seen::failed("the check has no port"),
        Err(why) => return Seen::failed(why),
    };
    let authority = place.authority();
    let seen = match check.spec.kind.as_str() {
        "tcp" => TcpStream::connect(&authority)
            .await
            .map(|_| Seen::good("nomad: tcp ok"))
            .map_err(|e| e.to_string()),
        "grpc" => grpc(&authority, check).await,
        _ => http(&authority, check).await,
    };
    seen.unwrap_or_else(|why| Seen::failed(format!("{} {authority}: {why}", check.spec.kind)))
}

async fn http(authority: &str, check: &DesiredCheck) -> Result<Seen, String> {
    let text = |error: &dyn std::error::Error| caravan_sys::describe(error);
    let method = match check.spec.method.as_str() {
        "" => http::Method::GET,
        name => name.parse().map_err(|_| format!("\"{name}\" is not an HTTP method"))?,
    };
    let path = if check.spec.path.starts_with('/') {
        check.spec.path.clone()
    } else {
        format!("/{}", check.spec.path)
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::USER_AGENT, concat!("caravan/", env!("CARGO_PKG_VERSION")));
    let mut named_host = false;
    for (name, values) in check.spec.header.iter().flatten() {
        named_host |= name.eq_ignore_ascii_case("host");
        for value in values {
            request = request.header(name, value);
        }
    }
    if !named_host {
        request = request.header(http::header::HOST, authority);
    }
    let body = Full::new(Bytes::from(check.spec.body.clone()));
    let request = request.body(body).map_err(|error| text(&error))?;
    let stream = connect(authority, check).await?;
    let reply = caravan_fetch::exchange(stream, request).await.map_err(|error| text(&error))?;
    match reply.status().as_u16() {
        // Of a successful response, only the status matters.
        code @ ..400 => Ok(Seen { status_code: code, ..Seen::good("nomad: http ok") }),
        code => {
            let body = reply.start(MAX_BODY).await.map_err(|error| text(&error))?;
            let output = String::from_utf8_lossy(&body).into_owned();
            Ok(Seen { success: false, status_code: code, output })
        }
    }
}

/// Opens the connection of a check. Over TLS, the server must have a certificate from an authority that the host
/// trusts, unless the check skips verification. The certificate must be for the service's address, or for the name that
/// the check sets.
async fn connect(authority: &str, check: &DesiredCheck) -> Result<Stream, String> {
    let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
    let spec = &check.spec;
    let grpc = spec.kind == "grpc";
    if !(if grpc { spec.grpc_use_tls } else { spec.protocol == "https" }) {
        return Ok(Stream::Plain(stream));
    }
    let checked = match spec.tls_server_name.as_str() {
        _ if spec.tls_skip_verify => Checked::Nothing,
        "" => Checked::Host,
        name => Checked::Name(name.to_owned()),
    };
    let settings = ClientSettings { checked, http2: grpc, ..ClientSettings::default() };
    let connector = Connector::new(&settings).map_err(|error| error.to_string())?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    connector.connect(host, stream).await.map_err(|error| error.to_string())
}

/// Calls `grpc.health.v1.Health/Check`.
async fn grpc(authority: &str, check: &DesiredCheck) -> Result<Seen, String> {
    let text = |error: &dyn std::error::Error| caravan_sys::describe(error);
    let stream = connect(authority, check).await?;
    let (scheme, name) = match (stream.is_tls(), check.spec.tls_server_name.as_str()) {
        (false, _) => ("http", authority),
        (true, "") => ("https", authority),
        (true, name) => ("https", name),
    };
    let origin = format!("{scheme}://{name}").parse().map_err(|error: http::uri::InvalidUri| text(&error))?;
    // The connection exists already: the scheme `http` only keeps the library from starting TLS.
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{authority}"))
        .map_err(|error| text(&error))?
        .origin(origin);
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: http::Uri| {
        std::future::ready(stream.take().ok_or_else(|| std::io::Error::other("the connection was lost")))
    });
    let channel = endpoint.connect_with_connector(connector).await.map_err(|error| text(&error))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| text(&error))?;
    let request = tonic::Request::new(HealthQuestion { service: check.spec.grpc_service.clone() });
    let codec = tonic_prost::ProstCodec::<HealthQuestion, HealthAnswer>::default();
    let path = http::uri::PathAndQuery::from_static("/grpc.health.v1.Health/Check");
    match client.unary(request, path, codec).await {
        Ok(answer) if answer.get_ref().status == SERVING => Ok(Seen::good("nomad: grpc ok")),
        Ok(answer) => Err(format!("its status is {}, not serving", answer.get_ref().status)),
        Err(status) => Err(format!("{}: {}", status.code(), status.message())),
    }
}

const SERVING: i32 = 1;

/// The message `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthQuestion {
    /// The service; empty for the server as a whole.
    #[prost(string, tag = "1")]
    service: String,
}

/// The message `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthAnswer {
    /// The status; 1 means `SERVING`.
    #[prost(int32, tag = "1")]
    status: i32,
}

async fn script(alloc: &AllocState, planner: &Planner, check: &DesiredCheck) -> Seen {
    let Some(task) = &check.acts_on else { return Seen::failed("the check names no task to run in") };
    let (driver, id) = match planner.running(alloc, task) {
        Ok(found) => found,
        Err(error) => return Seen::failed(error),
    };
    let command: Vec<String> =
        std::iter::once(&check.spec.command).chain(check.spec.args.iter().flatten()).cloned().collect();
    let timeout = check.spec.timeout.to_std().max(Duration::from_millis(100));
    match driver.exec(&TaskId(id), &command, timeout).await {
        Ok(done) => {
            let output = [done.stdout, done.stderr].concat();
            Seen {
                success: done.exit_code == 0,
                status_code: 0,
                output: String::from_utf8_lossy(&output).trim_end().to_owned(),
            }
        }
        Err(error) => Seen::failed(caravan_sys::describe(&error)),
    }
}
