/** The host of tests with native kernels, and the levels that they use. */
import { nativeLevels, type NativeChoice, type NativeLevel, type NativeResult } from '@winnow/native';
import { openNative } from '@winnow/native/node';
import { createHost } from '../src/host/host.node.js';
import type { WasmHost } from '../src/index.js';

/** The addon to test, such as one with sanitizers. Default: the one of this machine. */
const addon = process.env['WINNOW_TEST_ADDON'];

const open = (choice: NativeChoice = true): Promise<NativeResult> =>
  openNative(choice, addon === undefined ? {} : { path: addon });

export const nativeHost: WasmHost = { ...createHost(), openNative: open };

/** Levels of this machine, best first; none where the addon has not been built. */
export async function usableLevels(): Promise<readonly NativeLevel[]> {
  const found: NativeLevel[] = [];
  for (const level of nativeLevels) {
    if ((await open(level)).kernels !== undefined) found.push(level);
  }
  return found;
}
