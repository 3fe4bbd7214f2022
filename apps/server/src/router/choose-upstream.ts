/**
 * Which server gets a request. A prompt belongs to the server that computed most of its beginning; a new one to the server of its
 * first page by rendezvous hashing (highest random weight, Thaler and Ravishankar 1998), with bounded loads (arXiv:1608.01350): a server
 * above its share passes the prompt on to the next one in the order of the prompt.
 */
import { createHash } from 'node:crypto';

/** What is known about a server when one is chosen. */
export interface Candidate {
  readonly id: string;
  /** Requests that run or wait there. */
  readonly load: number;
  /** Requests that it runs at once. */
  readonly numSlots: number;
}

/** Why a server was chosen: it has the pages, the hash of the first page, or the least load. */
export type ChoiceReason = 'prefix' | 'hash' | 'load';

export interface Choice<T> {
  readonly chosen: T;
  readonly reason: ChoiceReason;
}

export interface PromptPlace {
  /** Of the first page. Undefined: the prompt is too short to have one. */
  readonly firstPage: string | undefined;
  /** The server that has most of the prompt. */
  readonly ownerId: string | undefined;
}

/** ⌈c (m + 1) / n⌉ for m requests on n servers. */
export function loadBound(totalLoad: number, numServers: number, loadFactor: number): number {
  return Math.ceil((loadFactor * (totalLoad + 1)) / numServers);
}

/** Servers by their weights for a key, highest first: without one of them, the others keep their order. */
export function rendezvousOrder<T extends { readonly id: string }>(key: string, servers: readonly T[]): T[] {
  const weighted = servers.map((server) => ({
    server,
    weight: createHash('sha1').update(`${server.id}\n${key}`).digest().readUIntBE(0, 6),
  }));
  return weighted
    .toSorted((a, b) => b.weight - a.weight || (a.server.id < b.server.id ? -1 : 1))
    .map(({ server }) => server);
}

/**
 * The server that has the pages gets the prompt while it has a free slot or is not above the bound; others while they are
 * below the bound, which at least one is.
 * @param candidates at least one
 * @param turn counts requests: servers with the same load take turns
 */
export function chooseUpstream<T extends Candidate>(
  candidates: readonly T[],
  { firstPage, ownerId }: PromptPlace,
  loadFactor: number,
  turn: number,
): Choice<T> {
  const total = candidates.reduce((sum, { load }) => sum + load, 0);
  const bound = loadBound(total, candidates.length, loadFactor);
  const owner = candidates.find(({ id }) => id === ownerId);
  if (owner !== undefined && owner.load < Math.max(bound, owner.numSlots)) return { chosen: owner, reason: 'prefix' };
  if (firstPage !== undefined) {
    const chosen = rendezvousOrder(firstPage, candidates).find(({ load }) => load < bound);
    if (chosen !== undefined) return { chosen, reason: 'hash' };
  }
  const least = Math.min(...candidates.map(({ load, numSlots }) => load / numSlots));
  const idle = candidates.filter(({ load, numSlots }) => load / numSlots === least);
  return { chosen: idle[turn % idle.length] as T, reason: 'load' };
}
