import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { chooseUpstream, loadBound, rendezvousOrder, type Candidate } from './choose-upstream.js';
import { PrefixTable } from './prefix-table.js';

const idOf = (index: number): string => `http://10.0.0.${index}:8080`;
const fleet = (numServers: number, numSlots = 1) =>
  Array.from({ length: numServers }, (_, index) => ({ id: idOf(index), load: 0, numSlots }));
const keys = fc.array(fc.string({ minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 300 });
const unowned = (firstPage: string) => ({ firstPage, ownerId: undefined });

describe('rendezvous hashing with bounded loads', () => {
  test('no server gets a prompt by its hash beyond its share, whatever the prompts are', () => {
    const sizes = fc.integer({ min: 1, max: 9 });
    fc.assert(
      fc.property(keys, sizes, fc.double({ min: 1, max: 3, noNaN: true }), (prompts, numServers, factor) => {
        const servers = fleet(numServers);
        for (const [turn, key] of prompts.entries()) {
          const bound = loadBound(turn, numServers, factor);
          const { chosen, reason } = chooseUpstream(servers, unowned(key), factor, turn);
          chosen.load++;
          expect(reason).toBe('hash'); // one server at least is below the bound
          expect(chosen.load).toBeLessThanOrEqual(bound);
        }
      }),
    );
  });

  test('when a server leaves, only its prompts move; when it returns, they return', () => {
    fc.assert(
      fc.property(keys, fc.integer({ min: 2, max: 9 }), fc.nat(), (prompts, numServers, leaving) => {
        const servers = fleet(numServers);
        const gone = idOf(leaving % numServers);
        const rest = servers.filter(({ id }) => id !== gone);
        for (const key of prompts) {
          const before = rendezvousOrder(key, servers).map(({ id }) => id);
          const after = rendezvousOrder(key, rest.toReversed()).map(({ id }) => id);
          expect(after).toEqual(before.filter((id) => id !== gone));
        }
      }),
    );
  });

  test('prompts are spread evenly', () => {
    const firsts = Array.from({ length: 3000 }, (_, index) => rendezvousOrder(`prompt ${index}`, fleet(3))[0]?.id);
    for (const { id } of fleet(3)) {
      // binomial(3000, 1/3): a standard deviation is 26, so this is eight of them
      expect(Math.abs(firsts.filter((first) => first === id).length - 1000)).toBeLessThan(207);
    }
  });
});

describe('the server that has the pages', () => {
  const choose = (servers: readonly Candidate[], ownerId: string) =>
    chooseUpstream(servers, { firstPage: 'a', ownerId }, 1.25, 0);

  test('gets the prompt while it has a free slot', () => {
    const servers = fleet(3, 4).map((server, index) => ({ ...server, load: index === 2 ? 3 : 0 }));
    expect(choose(servers, idOf(2))).toMatchObject({ chosen: { id: idOf(2) }, reason: 'prefix' });
  });

  test('gives it to the next one of the hash when its slots are busy and it is above the bound', () => {
    const servers = fleet(3, 4).map((server, index) => ({ ...server, load: index === 2 ? 4 : 0 }));
    expect(choose(servers, idOf(2))).toMatchObject({ reason: 'hash' });
    expect(choose(servers, idOf(2)).chosen.id).not.toBe(idOf(2));
    // all are busy alike: it is not above the bound, and keeps what it has
    const busy = servers.map((server) => ({ ...server, load: 4 }));
    expect(choose(busy, idOf(2))).toMatchObject({ chosen: { id: idOf(2) }, reason: 'prefix' });
  });

  test('prompts without pages go to the least loaded server per slot, in turns', () => {
    const servers = [
      { id: 'a', load: 2, numSlots: 8 },
      { id: 'b', load: 1, numSlots: 1 },
      { id: 'c', load: 1, numSlots: 4 },
    ];
    const nowhere = { firstPage: undefined, ownerId: undefined };
    const ids = [0, 1, 2].map((turn) => chooseUpstream(servers, nowhere, 1.25, turn).chosen.id);
    expect(ids).toEqual(['a', 'c', 'a']);
  });
});

describe('the table of prefixes', () => {
  const story = Array.from({ length: 400 }, (_, index) => `word ${index}`).join(' ');
  const keyOf = (text: string): string => PrefixTable.keyOf(text);

  test('finds the server of the longest beginning, down to half of the prompt', () => {
    const table = new PrefixTable();
    table.note(keyOf(story.slice(0, 1000)), 'a');
    table.note(keyOf(story.slice(0, 2000)), 'b');
    expect(table.placeOf(keyOf(`${story.slice(0, 2000)}!`)).ownerId).toBe('b');
    expect(table.placeOf(keyOf(`${story.slice(0, 2000)}${'?'.repeat(1000)}`)).ownerId).toBe('b');
    expect(table.placeOf(keyOf(`${story.slice(0, 1000)}${'?'.repeat(3000)}`)).ownerId).toBeUndefined();
    const other = table.placeOf(keyOf('?'.repeat(3000)));
    expect(other.ownerId).toBeUndefined();
    expect(other.firstPage).not.toBe(table.placeOf(keyOf(story)).firstPage);
    expect(table.placeOf(keyOf('short'))).toEqual({ firstPage: undefined, ownerId: undefined });
  });

  test('forgets a server that is gone, and what was used longest ago', () => {
    const table = new PrefixTable();
    table.note(keyOf(story), 'a');
    table.forget('a');
    expect([table.placeOf(keyOf(story)).ownerId, table.size]).toEqual([undefined, 0]);
    for (let index = 0; index < 5000; index++) table.note(keyOf(`${index} ${story}`), 'b');
    expect(table.size).toBe(65_536);
    expect(table.placeOf(keyOf(`0 ${story}`)).ownerId).toBeUndefined();
    expect(table.placeOf(keyOf(`4999 ${story}`)).ownerId).toBe('b');
  });
});
