/** The suite of `@winnow/conformance` over variants of the kernels, at 1, 2 and 4 threads. */
import { readFileSync } from 'node:fs';
import { describeVariants, type SupportTable } from '@winnow/conformance';
import type { Backend } from '@winnow/ops';
import { testCoverage } from '@winnow/test-utils';
import { createWasmBackend, type CreateWasmBackendOptions } from '../src/index.node.js';

const expectedSupport = JSON.parse(readFileSync(new URL('support.json', import.meta.url), 'utf8')) as SupportTable;

/** Small enough that hundreds of backends leave the address space alone. */
const maxMemoryBytes = 2 ** 26;

/**
 * Variants with activations in f32, which is what the bounds of the suite are derived for.
 * @param contractOf variants that differ from the others in more than kernels and the number of threads
 */
export function describeWasm(
  variants: Readonly<Record<string, CreateWasmBackendOptions>>,
  contractOf: readonly string[],
): void {
  const creators = Object.entries(variants).map(([name, options]) => {
    const create = (): Promise<Backend> =>
      createWasmBackend({ maxMemoryBytes, activations: 'f32', maxCallerMs: 0, ...options });
    return [name, create] as const;
  });
  describeVariants({
    variants: Object.fromEntries(creators),
    expectedSupport,
    coverage: testCoverage,
    contractOf: testCoverage === 'full' ? Object.keys(variants) : contractOf,
  });
}

/** The same for a backend that is made otherwise. */
export function describeOther(name: string, create: () => Promise<Backend>): void {
  describeVariants({ variants: { [name]: create }, expectedSupport, coverage: testCoverage });
}
