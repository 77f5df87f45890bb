"""Drafters that run a drafter model: lines, trees and multiple drafts."""
