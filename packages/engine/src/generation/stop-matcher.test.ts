import fc from 'fast-check';
import { expect, test } from 'vitest';
import { StopMatcher } from './stop-matcher.js';

test('the output is the text before the first stop sequence, however the text is split', () => {
  const piece = fc.stringMatching(/^[ab]{0,4}$/);
  const stop = fc.stringMatching(/^[ab]{1,4}$/);
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 20 }), fc.array(stop, { maxLength: 3 }), (pieces, stops) => {
      const matcher = new StopMatcher(stops);
      let output = '';
      for (const text of pieces) output += matcher.push(text);
      output += matcher.flush();
      // one character at a time, the stop sequence that completes first wins
      let seen = '';
      let expected: string | undefined;
      for (const text of pieces) {
        seen += text;
        const starts = stops.map((each) => seen.indexOf(each)).filter((start) => start >= 0);
        if (starts.length > 0) {
          expected = seen.slice(0, Math.min(...starts));
          break;
        }
      }
      expect(matcher.isMatched).toBe(expected !== undefined);
      expect(output).toBe(expected ?? pieces.join(''));
    }),
  );
});

test('only text that may begin a stop sequence is held back', () => {
  const matcher = new StopMatcher(['</s>']);
  expect(matcher.push('abc<')).toBe('abc');
  expect(matcher.push('/')).toBe('');
  expect(matcher.push('x')).toBe('</x');
  expect(matcher.push('</s>tail')).toBe('');
  expect(matcher.isMatched).toBe(true);
});

test('an empty stop sequence is rejected', () => {
  expect(() => new StopMatcher([''])).toThrow('stop: expected a list of non-empty strings, got ""');
  expect(() => new StopMatcher('END' as never)).toThrow(/got "END"/);
});
