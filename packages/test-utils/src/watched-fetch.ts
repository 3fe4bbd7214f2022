/** A `fetch` that says how much of a response was read. Runs in browsers, too. */

/** The header by which a `FakeHub` names a response. */
export const responseIdHeader = 'x-response-id';

/**
 * @param report gets 0 for a response and then the bytes of it that the reader has got. A stream that fails drops what nobody has read, so
 *   that a server which is to lose a connection after some bytes has to wait for them.
 */
export function watchedFetch(report: (responseId: string, numBytes: number) => void): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    const id = response.headers.get(responseIdHeader);
    if (id === null || response.body === null) return response;
    const { status, headers, url } = response;
    report(id, 0);
    // transforms a chunk only when it is asked for
    const watch = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        controller.enqueue(chunk);
        report(id, chunk.byteLength);
      },
    });
    const watched = new Response(response.body.pipeThrough(watch), { status, headers });
    return Object.defineProperty(watched, 'url', { value: url });
  };
}
