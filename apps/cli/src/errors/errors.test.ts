import { ArgumentError, BackendError, CapacityError, FormatError, IoError } from '@winnow/tensor';
import { describe, expect, test } from 'vitest';
import { errorLine, exitCodeOf, InterruptedError, OutputClosedError, UsageError, withFlags } from './errors.js';

const argument = new ArgumentError({ argument: 'topP', expected: 'a number', actual: 'x' });
const capacity = new CapacityError({ resource: 'context', needed: 9, available: 4, unit: 'tokens' });
const format = new FormatError({ source: 'a.gguf', byteOffset: 4, field: 'version', message: 'expected 3, got 9' });

describe('exit codes', () => {
  test.each([
    ['a wrong flag', new UsageError('x'), 2],
    ['a wrong argument of the engine', argument, 2],
    ['a broken file', format, 3],
    ['too much', capacity, 4],
    ['a failed read', new IoError({ source: 'a', message: 'gone' }), 1],
    ['a failed backend', new BackendError({ backend: 'wasm', message: 'lost' }), 1],
    ['Ctrl-C', new InterruptedError(), 130],
    ['a closed stdout', new OutputClosedError(), 0],
    ['a bug', new TypeError('x is undefined'), 1],
    ['something that is no error', 'thrown text', 1],
  ])('%s', (_name, error, code) => expect(exitCodeOf(error)).toBe(code));
});

describe('error lines', () => {
  test('are one line', () => {
    const error = new IoError({ source: 'a\nb', message: 'first\r\n  second' });
    expect(errorLine(error)).toBe('a b: first second');
  });

  test('use the names of the flags', () => {
    expect(errorLine(argument)).toBe('--top-p: expected a number, got x');
  });

  test.each([
    ['numThreads', 'an integer from 1 to 64', '--threads: expected an integer from 1 to 64, got x'],
    ['numDecoded', 'at most 5', '--decoded: expected at most 5, got x'],
    ['promptName', 'no name', '--prompt-name: expected no name, got x'],
    ['dimensions', 'an integer from 1', '--dimensions: expected an integer from 1, got x'],
    ['lengths', 'at most 5', '--lengths: expected at most 5, got x'],
    [
      'type of a.weight',
      'f16, or allowRequantize: true to do it',
      '--type of a.weight: expected f16, or --allow-requantize to do it, got x',
    ],
    ['destination', 'a new file, or overwrite: true', 'DESTINATION: expected a new file, or --force, got x'],
  ])('name what the user types instead of %s', (name, expected, line) => {
    expect(errorLine(new ArgumentError({ argument: name, expected, actual: 'x' }))).toBe(line);
  });

  test('use the names of flags in notices and hints, too', () => {
    const notice = '1 of 2 layers run dense (sparsity.maxActive); memory.hot fitting reduces it';
    expect(withFlags('kvCache.eviction.firstTokens, kvCache.prefixSharing')).toBe(
      '--kv-eviction-first-tokens, --no-kv-prefix-sharing',
    );
    expect(withFlags('use overflow truncate, or a larger context')).toBe(
      'use --overflow truncate, or a larger context',
    );
    expect(withFlags(notice)).toBe('1 of 2 layers run dense (--sparsity-max-active); --memory-hot fitting reduces it');
  });

  test('leave words alone that only begin with the name of an option', () => {
    const globals = { argument: 'attention: globals', expected: 'at most 16 positions', actual: '17' };
    expect(errorLine(new ArgumentError(globals))).toBe('attention: globals: expected at most 16 positions, got 17');
    const positions = { argument: 'positions', expected: 'positions of tokens', actual: '-1' };
    expect(errorLine(new ArgumentError(positions))).toBe('--positions: expected positions of tokens, got -1');
    const nested = { argument: 'kvCache.eviction.sinks', expected: 'an integer from 0', actual: '-1' };
    expect(errorLine(new ArgumentError(nested))).toBe('--kv-eviction.sinks: expected an integer from 0, got -1');
  });

  test('keep names of files unchanged', () => {
    const error = new FormatError({ source: 'a', field: 'topP', message: 'expected a number' });
    expect(errorLine(error)).toBe('a: topP: expected a number');
  });

  test('mark unexpected failures', () => {
    expect(errorLine(new TypeError('x is undefined'))).toBe(
      'unexpected failure: x is undefined (WINNOW_DEBUG=1 prints the stack)',
    );
    expect(errorLine(undefined)).toContain('unexpected failure');
  });
});
