//! A large state: all of it arrives, by pages and as a stream, and each object was written once.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use proxier_testkit::apiserver::{ApiServer, Verb};
use proxier_testkit::scale;

use crate::kube_client::client_of;

/// Services, and slices, of the test. `proxier-testapi --services` serves more.
const COUNT: u32 = 3000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_objects_come_by_pages_and_as_a_stream() {
    use futures_util::StreamExt;
    let server = ApiServer::builder().start().await.unwrap();
    server.put_all((0..COUNT).map(scale::service_json)).unwrap();
    server.put_all((0..COUNT).map(|number| scale::slice_json(number, 2, 0))).unwrap();
    let client = client_of(&server.kubeconfig(None)).await;

    let services: Api<Service> = Api::all(client.clone());
    let (mut names, mut parameters) = (BTreeSet::new(), ListParams::default().limit(500));
    loop {
        let page = services.list(&parameters).await.unwrap();
        names.extend(page.items.iter().map(ResourceExt::name_any));
        match page.metadata.continue_ {
            Some(token) => parameters = parameters.continue_token(&token),
            None => break,
        }
    }
    assert_eq!(
        (names.len(), server.requests(Verb::List, "services")),
        (COUNT as usize, u64::from(COUNT.div_ceil(500)))
    );

    let slices: Api<EndpointSlice> = Api::all(client);
    let streaming = WatchParams::default().initial_events();
    let mut stream = std::pin::pin!(slices.watch(&streaming, "0").await.unwrap());
    let mut count = 0;
    loop {
        match stream.next().await.unwrap().unwrap() {
            WatchEvent::Added(_) => count += 1,
            WatchEvent::Bookmark(mark) => {
                assert!(mark.metadata.annotations.contains_key("k8s.io/initial-events-end"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(count, COUNT);
}
