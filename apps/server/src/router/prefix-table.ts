/** Which server computed which beginning of a prompt last. */
import { charactersPerHash, prefixGroup } from '../batches/prefix-group.js';
import type { PromptPlace } from './choose-upstream.js';
import { Owners } from './owners.js';

/** Beginnings of prompts: about 8 MB. */
const maxBeginnings = 65_536;

/**
 * The beginnings are those of `prefixGroup`, whose lengths grow by a quarter: the key of a shorter one is the beginning of the key of
 * a longer one.
 */
export class PrefixTable {
  readonly #owners = new Owners(maxBeginnings);

  get size(): number {
    return this.#owners.size;
  }

  /** @param key of `keyOf` */
  placeOf(key: string): PromptPlace {
    if (key === '') return { firstPage: undefined, ownerId: undefined };
    // a server that has less than half of a prompt is no better than the one of its first page
    const leastLength = Math.max(charactersPerHash, key.length - 3 * charactersPerHash);
    let ownerId: string | undefined;
    for (let end = key.length; end >= leastLength && ownerId === undefined; end -= charactersPerHash) {
      ownerId = this.#owners.get(key.slice(0, end));
    }
    return { firstPage: key.slice(0, charactersPerHash), ownerId };
  }

  /** A server computes a prompt. */
  note(key: string, serverId: string): void {
    for (let end = charactersPerHash; end <= key.length; end += charactersPerHash) {
      this.#owners.set(key.slice(0, end), serverId);
    }
  }

  /** The pages of a server are gone. */
  forget(serverId: string): void {
    this.#owners.forget(serverId);
  }

  static keyOf(prompt: string): string {
    return prefixGroup(prompt);
  }
}
