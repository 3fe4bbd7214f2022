/** Connections to servers, by the protocol's own library: apart, so that a page loads it when a server is used. */
export { McpServer, httpTransport, type ConnectOptions } from './server.js';
