/** The host of every command: output, progress, warnings, Ctrl-C. */
import { abortable } from '../terminal/interrupts.js';
import type { CliIo } from '../terminal/io.js';
import type { OpenContext } from '../models/open-model.js';
import type { CommonFlags } from '../flags/load.js';
import type { Output } from '../terminal/output.js';
import { printable } from '../errors/printable.js';
import { createProgress } from '../terminal/progress.js';

export interface CommandContext extends OpenContext {
  readonly out: Output;
  /** From now on the command handles Ctrl-C itself. */
  readonly releaseInterrupts: () => void;
}

export class CommandHost {
  readonly io: CliIo;
  readonly out: Output;

  constructor(io: CliIo, out: Output) {
    this.io = io;
    this.out = out;
  }

  /** Runs a command; Ctrl-C aborts its signal. */
  run(flags: CommonFlags, work: (context: CommandContext) => Promise<void>): Promise<void> {
    const { io, out } = this;
    const progress = createProgress(io.stderr, { isQuiet: flags.quiet === true });
    const warn = (text: string): void => {
      if (flags.quiet === true) return;
      progress.clear();
      io.stderr.write(`winnow: ${printable(text)}\n`);
    };
    return abortable(io, async (signal, releaseInterrupts) => {
      try {
        await work({ io, out, progress, signal, warn, releaseInterrupts });
      } finally {
        progress.clear();
      }
    });
  }
}
