package junit.framework;

public abstract class TestCase {}
