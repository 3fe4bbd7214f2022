/** Reference counts of detached pages. */
import { ArgumentError, invariant } from '@winnow/tensor';
import type { DetachedPage } from './sequence-state.js';

export class PageReferences {
  readonly #counts = new Map<number, number>();

  /** @throws {ArgumentError} for an id in use */
  checkUnused(pageId: number): void {
    if (!this.#counts.has(pageId)) return;
    throw new ArgumentError({ argument: 'pageId', expected: 'an id not in use', actual: String(pageId) });
  }

  retain(pageId: number): void {
    this.#counts.set(pageId, (this.#counts.get(pageId) ?? 0) + 1);
  }

  /** Releases one reference. Pages without references are added to `dropped`. */
  release(pageId: number, dropped: number[]): void {
    const count = (this.#counts.get(pageId) as number) - 1;
    if (count > 0) {
      this.#counts.set(pageId, count);
    } else {
      this.#counts.delete(pageId);
      dropped.push(pageId);
    }
  }

  /** @throws {Error} unless the counts match `pages`, one entry per reference */
  checkIntegrity(pages: Iterable<DetachedPage>): void {
    const expected = new Map<number, number>();
    for (const { pageId } of pages) expected.set(pageId, (expected.get(pageId) ?? 0) + 1);
    const textOf = (counts: ReadonlyMap<number, number>): string => [...counts].sort(([a], [b]) => a - b).join(' ');
    const [found, counted] = [textOf(expected), textOf(this.#counts)];
    invariant(found === counted, `pages ${found}, counted ${counted}`);
  }
}
