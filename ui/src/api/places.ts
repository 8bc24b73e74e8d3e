// The addresses of the page and of the API. The agent writes a `<base>` element that names the root of the page, so
// both work below any prefix. The base is read once: it must not depend on later addresses.

/** The address of `/ui/`. */
export const uiRoot = new URL(document.baseURI.endsWith('/') ? document.baseURI : './', document.baseURI);
/** The address of `/v1/`. */
export const apiRoot = new URL('../v1/', uiRoot);

/** Returns the raw path of the current address below `/ui/`. */
export function rawPath(): string {
  return location.pathname.startsWith(uiRoot.pathname) ? location.pathname.slice(uiRoot.pathname.length) : '';
}
