import linnet


def test_version():
    assert linnet.__version__.count(".") == 2
