/** Flags of tools of MCP servers. */
import type { Command } from 'commander';
import type { ToolChoice } from '@winnow/engine';
import { addGroup, listOption, numberOption, numberRules, parsedOption } from './builders.js';

export interface McpFlags {
  readonly mcp?: readonly string[];
  readonly mcpAllow?: readonly string[];
  readonly mcpTimeout: number;
  readonly toolChoice?: ToolChoice;
}

/** Seconds. */
const defaultTimeout = 60;

export function addMcpOptions(command: Command): Command {
  return addGroup(command, {
    heading: 'Tools',
    common: [
      listOption('--mcp <command|url>', 'use the tools of an MCP server; may be repeated'),
      listOption('--mcp-allow <tool>', 'call this tool without asking; may be repeated'),
    ],
    advanced: [
      numberOption(
        '--mcp-timeout <s>',
        'seconds without an answer or progress after which a call fails',
        numberRules.positive,
      ).default(defaultTimeout),
      parsedOption(
        '--tool-choice <choice>',
        'whether each reply begins with a call: auto, none, required, or the name of a tool (default: auto)',
        (_name, text): ToolChoice =>
          text === 'auto' || text === 'none' || text === 'required' ? text : { name: text },
      ),
    ],
  });
}

/** Flag of the first of these that was given without `--mcp`. */
export function flagWithoutServer({ mcp, mcpAllow, toolChoice }: McpFlags): string | undefined {
  if (mcp !== undefined) return undefined;
  if (mcpAllow !== undefined) return '--mcp-allow';
  return toolChoice === undefined ? undefined : '--tool-choice';
}
