/**
 * Lines that begin alike wait until one of them has computed the common beginning: together they would compute it as often as
 * there are lines.
 */
import { charactersPerHash, numSharedHashes } from './prefix-group.js';

/** Shorter common beginnings, of up to about 60 tokens, are not worth waiting for. */
const minHashes = 5;
/** Number of latest lines whose pages are probably still in the cache. */
const maxComputed = 64;

export class PrefixGate {
  /** Lines whose prompts are being computed, and their waiters. */
  readonly #computing = new Map<string, Promise<void>>();
  /** The latest lines whose prompts were computed. */
  readonly #computed = new Set<string>();

  /**
   * Waits while another line computes more of the beginning than is in the cache.
   * @param group of `prefixGroup`
   * @returns a function to call when the prompt has been computed, or will not be
   */
  async enter(group: string): Promise<() => void> {
    for (let leader = this.#leaderOf(group); leader !== undefined; leader = this.#leaderOf(group)) await leader;
    const { promise, resolve } = Promise.withResolvers<void>();
    const isLeader = group.length >= minHashes * charactersPerHash && !this.#computing.has(group);
    if (isLeader) this.#computing.set(group, promise);
    return () => {
      if (isLeader && this.#computing.get(group) === promise) this.#computing.delete(group);
      this.#computed.delete(group);
      this.#computed.add(group);
      const [oldest = ''] = this.#computed;
      if (this.#computed.size > maxComputed) this.#computed.delete(oldest);
      resolve();
    };
  }

  #leaderOf(group: string): Promise<void> | undefined {
    const sharedWith = (groups: Iterable<string>): [number: number, group: string] => {
      let best: [number, string] = [0, ''];
      for (const other of groups) {
        const shared = numSharedHashes(group, other);
        if (shared > best[0]) best = [shared, other];
      }
      return best;
    };
    const [numComputing, leader] = sharedWith(this.#computing.keys());
    const [numComputed] = sharedWith(this.#computed);
    return numComputing >= minHashes && numComputing > numComputed ? this.#computing.get(leader) : undefined;
  }
}
